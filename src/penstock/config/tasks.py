"""Whether a task could ever run under a config; asked before it is accepted.

A task that names an unknown lane, or needs more than any host has, would wait for ever. Bulk submits bring
millions of tasks in a handful of shapes, so what a shape allows is worked out once and remembered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from penstock.config.councils import STEP_KEYS
from penstock.config.deadlocks import RunRules
from penstock.config.document import Config
from penstock.config.keys import (
    COUNT_OR_NONE,
    ID,
    ID_RULE,
    MAX_MODEL,
    NAME,
    NAME_RULE,
    SECONDS,
    TASK_ID,
    TOKENS,
    TOLERANCE,
    Bounds,
    shown,
)
from penstock.config.outputs import OutputRules, output_problem, saved_at
from penstock.config.problems import kind_of, meant, nearest, quoted
from penstock.config.takes import takes
from penstock.config.wording import NOT_KNOWN
from penstock.errors import TaskError
from penstock.model import CALL_KINDS, CHAT_CALL, PRIORITIES, Host, OnCrash, Task
from penstock.trace import context_of

MAX_KEY = 512
MAX_AFTER = 10_000
_EPOCH = Bounds(0, 1e11)  # beyond the year 5000 it was given in milliseconds
_NEED = Bounds(0, 1e15)
_SLOTS_NEEDED = Bounds(0, 1_000_000, above=True)  # of none at all, any number would run at once
_MAX_SHAPES = 100_000  # shapes remembered; needs could differ from task to task

Found: TypeAlias = list[tuple[str, str]]  # field, what is wrong


def check_task(config: Config, task: Task) -> None:
    """TaskError when this task could never run; for many tasks use one `TaskChecker`."""
    TaskChecker(config).check(task)


class TaskChecker:
    """Checks tasks against one config; without a config, only what holds under any.

    With `calls` they may be calls of models, which nobody submits. With `own_calls` they are what runs wait for:
    calls and steps of questions, which have lanes to themselves. With `silent` its messages repeat nothing of a
    task, which stands for what a config says. `edited` is the config that the file has by now, where that differs:
    what only that one has is told as such.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        calls: bool = False,
        own_calls: bool = False,
        silent: bool = False,
        edited: Callable[[], Config | None] = lambda: None,
    ) -> None:
        self._edited = edited
        self._calls = calls or own_calls
        self._own_calls = own_calls
        self._outputs = None if config is None else OutputRules(config)
        self._rules = None if config is None else _Rules(config, own_calls, silent)
        self._good: set[tuple[object, ...]] = set()
        # Good values of the last task: in a bulk submit they are mostly the same.
        self._last_run = ""
        self._last_timeout_s: float | None = None
        self._last_trace: str | None = None

    def check(self, task: Task) -> None:
        if self._is_plainly_good(task):
            return
        if found := self.problems(task):
            name = f"task {quoted(task.id)}" if task.id else f"task of kind {quoted(task.kind)}"
            raise TaskError(f"{name}: " + "; ".join(f"{field}: {what}" for field, what in found))

    def problems(self, task: Task) -> Found:
        """Everything wrong with a task: which field, and what."""
        if self._is_plainly_good(task):
            return []
        shape_found: Found = []
        _check_shape(task, shape_found, self._calls)
        if not shape_found and self._rules is not None:
            self._rules.check(task, shape_found)
            if shape_found and (edited := self._edited()) is not None:
                shape_found = _explained(task, shape_found, edited)
        if not shape_found:
            if len(self._good) >= _MAX_SHAPES:
                self._good.clear()
            self._good.add(_shape(task))
        return shape_found + self._own_problems(task)

    def saved_at(self, output: str) -> str | None:
        """The file that an output means; None without a config."""
        return None if self._outputs is None else saved_at(output, self._outputs.root)

    def _own_problems(self, task: Task) -> Found:
        found: Found = []
        _check_own(task, found)
        if not self._own_calls and isinstance(task.key, str) and task.key.startswith(STEP_KEYS):
            # Whoever could take such a key could answer in the place of a council's member.
            found.append(
                ("key", f"{quoted(STEP_KEYS)} begins the keys of councils' own tasks; choose another")
            )
        if task.output is not None and (what := output_problem(task.output, self._outputs)) is not None:
            found.append(("output", what))
        return found

    def _is_plainly_good(self, task: Task) -> bool:
        """The quick way: a shape met before, and nothing beside it that wants a look."""
        try:
            if _shape(task) not in self._good:
                return False
        except (TypeError, AttributeError):  # a field of a wrong type has no hash
            return False
        priority = task.priority
        if priority.__class__ is not int or not 0 <= priority <= 4 or not _may_crash_so(task):
            return False
        # The usual fields in line, because a call costs as much as all of them; the rest in full.
        if (
            (task.id == "" or (task.id.__class__ is str and TASK_ID.fullmatch(task.id) is not None))
            and (task.run == "" or task.run == self._last_run)
            and (task.timeout_s is None or task.timeout_s == self._last_timeout_s)
            and task.key is None
            and task.after == ()
            and task.deadline is None
            and task.not_before is None
            and task.retries is None
            and task.output is None
            and (task.trace is None or task.trace == self._last_trace)
        ):
            return True
        found = self._own_problems(task)
        if not found:
            self._last_run = task.run
            self._last_timeout_s = task.timeout_s
            self._last_trace = task.trace
        return not found


def _explained(task: Task, found: Found, edited: Config) -> Found:
    """The same, where the file has by now what the config in use has not."""
    if TaskChecker(edited).problems(task):
        return found
    named = {"lane": task.lane, "kind": task.kind, "host": task.host, "model": task.model}
    return [
        (field, f"{quoted(named[field])}: {NOT_KNOWN}" if named.get(field) else what) for field, what in found
    ]


def _shape(task: Task) -> tuple[object, ...]:
    needs = task.needs
    return (task.kind, task.lane, task.host, task.model, None if needs is None else tuple(needs.items()))


# ---- what holds under any config


def _check_shape(task: Task, found: Found, calls: bool) -> None:
    if task.kind is None or task.kind == "":
        found.append(("kind", "is missing; every task needs one"))
    elif not isinstance(task.kind, str):
        found.append(("kind", _text_wanted(task.kind)))
    elif task.kind in CALL_KINDS:
        if not calls:
            what = "is a kind of calls, which come by /v1 or `penstock ask`; name a kind that a host serves"
            found.append(("kind", f"{quoted(task.kind)} {what}"))
    elif not NAME.fullmatch(task.kind):
        found.append(("kind", f"{quoted(task.kind)} is not a name: {NAME_RULE}"))
    for field, name in (("lane", task.lane), ("host", task.host)):
        if name is None and field == "host":
            continue
        if not isinstance(name, str):
            found.append((field, _text_wanted(name)))
        elif not NAME.fullmatch(name):
            found.append((field, f"{quoted(name)} is not a name: {NAME_RULE}"))
    if task.model is not None:
        _check_line("model", task.model, MAX_MODEL, found)
    _check_needs(task.needs, found)


def _check_needs(needs: object, found: Found) -> None:
    if needs is None:
        return
    if not isinstance(needs, Mapping):
        found.append(("needs", f"must be a table like {{ vram_gb = 8 }}, not {kind_of(needs)}"))
        return
    for unit, amount in needs.items():
        if not isinstance(unit, str) or not NAME.fullmatch(unit):
            found.append(("needs", f"{quoted(unit)} is not the name of a unit: {NAME_RULE}"))
        else:
            bounds = _SLOTS_NEEDED if unit == "slots" else _NEED
            _check_number(f"needs.{unit}", amount, bounds, found)


def _check_own(task: Task, found: Found) -> None:
    """The fields that differ from task to task."""
    priority = task.priority
    if priority.__class__ is not int or priority not in PRIORITIES:
        found.append(
            ("priority", f"must be a whole number from 0 (most urgent) to 4, not {kind_of(priority)}")
        )
    for field, name, form in (("id", task.id, TASK_ID), ("run", task.run, ID)):
        if name == "":
            continue
        if not isinstance(name, str):
            found.append((field, _text_wanted(name)))
        elif not form.fullmatch(name):
            found.append((field, f"{quoted(name)} cannot be used: {ID_RULE}"))
    if task.key is not None:
        _check_line("key", task.key, MAX_KEY, found)
    if task.after != ():
        _check_after(task.after, task.id, found)
    if task.timeout_s is not None:
        _check_number("timeout_s", task.timeout_s, SECONDS, found)
    if task.deadline is not None:
        _check_number("deadline", task.deadline, _EPOCH, found)
    if task.not_before is not None:
        _check_number("not_before", task.not_before, _EPOCH, found)
    retries = task.retries
    if retries is not None and (retries.__class__ is not int or not COUNT_OR_NONE.hold(retries)):
        found.append(("retries", f"must be a whole number {COUNT_OR_NONE}, not {kind_of(retries)}"))
    if task.trace is not None and (not isinstance(task.trace, str) or context_of(task.trace) is None):
        found.append(
            ("trace", 'must be a W3C traceparent, such as "00-' + "ab" * 16 + "-" + "cd" * 8 + '-01"')
        )
    if not _may_crash_so(task):
        found.append(("on_crash", 'must be "retry" or "block"'))


def _may_crash_so(task: Task) -> bool:
    """What a task may ask for; the third belongs to calls. By identity: it may be anything."""
    on_crash = task.on_crash
    return (
        on_crash is OnCrash.RETRY
        or on_crash is OnCrash.BLOCK
        or (on_crash is OnCrash.CANCEL and task.is_call)
    )


def _check_after(after: object, own_id: str, found: Found) -> None:
    if not isinstance(after, tuple | list):
        found.append(("after", f"must be a list of task ids, not {kind_of(after)}"))
        return
    if len(after) > MAX_AFTER:
        found.append(("after", f"{len(after)} tasks to wait for are too many; at most {MAX_AFTER}"))
        return
    for other in after:
        if not isinstance(other, str) or not TASK_ID.fullmatch(other):
            what = quoted(other) if isinstance(other, str) else kind_of(other)
            found.append(("after", f"{what} is not the id of a task: {ID_RULE}; or RUN:NAME"))
        elif other == own_id:
            found.append(("after", f"task {quoted(other)} waits for itself; take its own id out"))


def _check_number(field: str, value: object, bounds: Bounds, found: Found) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not bounds.hold(value):
        late = bounds is _EPOCH and isinstance(value, int | float) and value > bounds.high
        hint = "; give seconds, not milliseconds" if late else ""
        found.append((field, f"must be a number {bounds}, not {kind_of(value)}{hint}"))


def _check_line(field: str, value: object, most: int, found: Found) -> None:
    if not isinstance(value, str) or not value:
        found.append((field, _text_wanted(value)))
    elif len(value) > most:
        found.append((field, f"is {len(value)} characters long; at most {most}"))
    elif not value.isprintable():
        found.append((field, "must be one line without control characters"))


def _text_wanted(value: object) -> str:
    return f"must be text, not {kind_of(value)}"


# ---- what one config allows


class _Rules:
    def __init__(self, config: Config, own_calls: bool, silent: bool) -> None:
        self._silent = silent
        self._file = "penstock.toml" if config.path is None else config.path.name
        self._plant = plant = config.plant
        self._runs = RunRules(config)
        self._own_calls = own_calls
        self._hosts = {host.name: host for host in plant.hosts}
        self._lanes = frozenset(lane.name for lane in plant.lanes)
        self._kinds = {kind for host in plant.hosts for kind in host.serves if kind != "*"}
        self._reserves: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        for lane in plant.lanes:
            for host_name, units in lane.reserve.items():
                for unit, amount in units.items():
                    self._reserves[host_name, unit][lane.name] = amount

    def check(self, task: Task, found: Found) -> None:
        """`task` is well-formed; is there a lane and a host for it?"""
        if task.lane not in self._lanes:
            found.append(("lane", f"no lane {quoted(task.lane)}; {self._lane_remedy(task.lane)}"))
        serving = self._serving(task, found)
        if (wrong := self._runs.lane_problem(task.lane, serving)) is not None and not self._own_calls:
            found.append(("lane", wrong))
        hosts = self._plant.hosts_for(task.kind, task.host, task.model) if serving else []
        if serving and not hosts:
            what = "answers calls" if task.is_call else f"serves {quoted(task.kind)}"
            where = f"host {quoted(task.host)} does not have" if task.host else f"no host that {what} has"
            found.append(
                ("model", f"{where} {self._word('model', task.model)}{self._other_models(task, serving)}")
            )
        if hosts and (wrong := self._runs.model_problem(task.model, hosts)) is not None:
            found.append(("model", wrong))
        if hosts and not found:
            self._check_room(task, hosts, found)

    def _lane_remedy(self, lane: str) -> str:
        if near := nearest(lane, self._lanes):
            return f"did you mean {near!r}?"
        return f"add [lanes.{lane}] to {self._file}"

    def _serving(self, task: Task, found: Found) -> list[Host]:
        if task.host is not None:
            host = self._hosts.get(task.host)
            if host is None:
                what = "such host" if self._silent else f"host {quoted(task.host)}"
                found.append(("host", f"no {what}{meant(task.host, self._hosts, 'hosts')}"))
                return []
            if not host.serves_kind(task.kind):
                what = f"does not serve {self._word('kind', task.kind)}; it {takes(host)}"
                if task.is_call:
                    what = "answers no calls; name another host, or none"
                found.append(("host", f"{quoted(host.name)} {what}"))
                return []
            return [host]
        hosts = self._plant.hosts_for(task.kind)
        if not self._hosts:
            found.append(("kind", "no host is configured; add one: [hosts.NAME]"))
        elif not hosts and task.is_call:
            found.append(("model", "no host answers calls; add one of type openai or local to penstock.toml"))
        elif not hosts:
            what = f"no host serves {self._word('kind', task.kind)}"
            found.append(("kind", f"{what}{self._other_kinds(task.kind)}"))
        return hosts

    def _word(self, what: str, word: str | None) -> str:
        return f"this {what}" if self._silent else f"{what} {quoted(word)}"

    def _other_kinds(self, kind: str) -> str:
        """The end of a message about a kind that no host serves; it may have been taken for that of calls."""
        model = next(iter(self._plant.hosts_for(CHAT_CALL)), None)
        if self._silent or model is None or nearest(kind, self._kinds):
            return meant(kind, self._kinds, "kinds")
        return f" ({model.name} {takes(model)}); {_to_serve(kind, model)}"

    def _other_models(self, task: Task, serving: Sequence[Host]) -> str:
        """The end of a message about a model that none of those has which serve the kind; another may have it."""
        model = task.model or ""
        models = _models_of(serving) or _models_of(self._hosts.values())
        other = next((host for host in self._hosts.values() if host.has_model(model)), None)
        if other is None or task.host is not None or task.is_call:
            return meant(model, models, "models")
        return f" ({other.name} has it and {takes(other)}); {_to_serve(task.kind, other)}"

    def _check_room(self, task: Task, hosts: Sequence[Host], found: Found) -> None:
        """Some host must be able to hold it when nothing else runs there."""
        needs = {"slots": 1.0, **(task.needs or {})}
        needs.pop(TOKENS, None)
        if any(
            all(self._room(host, unit, task.lane).ever >= amount for unit, amount in needs.items())
            for host in hosts
        ):
            return
        for unit, amount in needs.items():
            rooms = [(host, self._room(host, unit, task.lane)) for host in hosts]
            if all(room.ever < amount for _, room in rooms):
                best = sorted(rooms, key=lambda item: -item[1].ever)[:4]
                most = ", ".join(f"{host.name} {room}" for host, room in best)
                field = f"needs.{unit}" if unit in (task.needs or {}) else "lane"
                found.append(
                    (
                        field,
                        f"needs {_amount(amount, unit)}, but no host that could take it has as much: {most}; "
                        "ask for less",
                    )
                )
        if not found:
            names = ", ".join(host.name for host in hosts[:4])
            wanted = ", ".join(_amount(amount, unit) for unit, amount in needs.items())
            found.append(
                (
                    "needs",
                    f"needs {wanted} at once, which no host that could take it has: {names}; ask for less",
                )
            )

    def _room(self, host: Host, unit: str, lane: str) -> _Room:
        reserves = self._reserves.get((host.name, unit), {})
        reserved = sum(amount for other, amount in reserves.items() if other != lane)
        if unit == "slots":
            return _Room(host.slots if host.auto is None else host.auto.max, reserved)
        return _Room(host.units.get(unit, 0.0), reserved)


def _models_of(hosts: Iterable[Host]) -> set[str]:
    return {model for host in hosts for model in (host.model, *host.models) if model}


def _to_serve(kind: str, host: Host) -> str:
    return f"add {quoted(kind)} to hosts.{host.name}.serves, or name another kind"


def _amount(amount: float, unit: str) -> str:
    return "1 slot" if (amount, unit) == (1, "slots") else f"{shown(amount)} {unit}"


class _Room(NamedTuple):
    total: float
    reserved: float  # by other lanes

    @property
    def ever(self) -> float:
        return self.total - self.reserved + TOLERANCE

    def __str__(self) -> str:
        if not self.reserved:
            return shown(self.total)
        return f"{shown(self.total)} ({shown(self.reserved)} of them reserved by other lanes)"


# ---- what holds among tasks


def find_circle(tasks: Iterable[Task]) -> tuple[str, ...]:
    """Ids of tasks that wait for each other, in order and closed; empty when none do."""
    after = {task.id: task.after for task in tasks if task.id and task.after}
    cleared: set[str] = set()
    for start in after:
        trail: dict[str, int] = {}  # the way here, in order
        stack = [(start, iter(after[start]))] if start not in cleared else []
        trail[start] = 0
        while stack:
            here, rest = stack[-1]
            for other in rest:
                if other in trail:
                    way = list(trail)[trail[other] :]
                    return (*way, other)
                if other in after and other not in cleared:
                    trail[other] = len(trail)
                    stack.append((other, iter(after[other])))
                    break
            else:
                stack.pop()
                trail.pop(here)
                cleared.add(here)
    return ()
