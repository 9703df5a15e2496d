"""What a store lets in: tasks are checked, numbered and encoded here before anything is written.

All that can be known without the database is decided here, outside of any transaction, so that a bad task
costs nobody else a wait. What needs the database (is that id taken, is that key known, does that `after`
exist) is left to the store, which finds what to ask in the `Batch`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.errors import TaskError, TaskRefused
from penstock.model import PRIORITIES, OnCrash, Task
from penstock.store.ids import new_ids
from penstock.store.rows import NOT_JSON, encode, is_text, names_text, units_text
from penstock.trace import context_of

MAX_PAYLOAD_BYTES = 1 << 20
MAX_TEXT = 200  # characters of a key, kind, lane, run, host or model
INLINE_BYTES = 512  # longer payloads are kept apart from the task's row
# A caller's loop is let go on after so many tasks, or so much JSON, of a long submit.
SLICE_TASKS = 200
SLICE_BYTES = 256 * 1024
_ROW_BYTES = 200  # about, of all but payload and lists
_MAX_INT = 1 << 31
_HUGE = 1e15  # beyond any time or amount; not-a-number is not below it either

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")

# A row is (id, run, kind, lane, priority, queued_at, after, needs, host, model, timeout_s, deadline,
# not_before, retries, key, on_crash, payload, trace, output).
Row = tuple[Any, ...]
ROW_WIDTH = 19
ID, RUN, QUEUED_AT, AFTER, KEY, PAYLOAD = 0, 1, 5, 6, 14, 16


class Batch:
    """Tasks ready to be written, and what the store has yet to ask about them."""

    __slots__ = ("after", "file", "given", "ids", "keyed", "long_payloads", "rows", "run", "size")

    def __init__(self, run: str = "", file: str = "") -> None:
        self.run = run
        self.file = file  # the task file they come from, whose newest run this is to be
        self.ids: list[str] = []
        self.rows: list[Row] = []
        self.after: dict[int, tuple[str, ...]] = {}  # place in the batch -> ids
        self.given: set[str] = set()  # ids that were not made here
        self.keyed = False
        self.long_payloads: dict[int, str] = {}  # place in the batch -> JSON
        self.size = 0  # bytes, about


def _fresh_ids(count: int) -> Iterator[str]:
    """Ids for as many, made when the first is wanted: tasks that bring theirs need none."""
    yield from new_ids(count)


class Admission:
    """Takes tasks in slices, so that a caller's loop can breathe between them."""

    def __init__(
        self,
        tasks: Sequence[Task],
        now: float,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        run: str = "",
        file: str = "",
    ) -> None:
        self._tasks = tasks
        self._now = now
        self._max_payload_bytes = max_payload_bytes
        self._fresh = _fresh_ids(len(tasks) + 1)
        self._run = run  # of tasks that name none
        self._plain: set[tuple[Any, ...]] = set()
        self._batch = Batch(run, file)

    def advance(self, most_tasks: int, most_bytes: int) -> bool:
        """Take in the next tasks, about as many as said; whether there are more."""
        rows = self._batch.rows
        size = 0
        first = len(rows)
        for task in self._tasks[first : first + most_tasks]:
            size += self._admit(task)
            if size > most_bytes:
                break
        return len(rows) < len(self._tasks)

    def batch(self) -> Batch:
        """Everything, once `advance` said that there is no more."""
        batch = self._batch
        if batch.after:
            refuse_cycles(batch.ids, batch.after)
        return batch

    def _admit(self, task: Task) -> int:
        batch = self._batch
        task_id = task.id
        if task_id:
            self._check_id(task_id)
            batch.given.add(task_id)
        else:
            task_id = next(self._fresh)
        run = task.run
        if not run:
            run = self._run = self._run or "r-" + next(self._fresh)
        self._check_plain(task, run)
        after = None
        if task.after:
            batch.after[len(batch.rows)] = self._checked_after(task)
            after = names_text(task.after)
        key = task.key
        if key is not None:
            self._check_text("key", key)
            batch.keyed = True
        payload, size = self._payload(task)
        batch.size += _ROW_BYTES + size + (0 if after is None else len(after))
        batch.ids.append(task_id)
        batch.rows.append(
            (
                task_id,
                run,
                task.kind,
                task.lane,
                task.priority,
                task.queued_at or self._now,
                after,
                None if task.needs is None else self._needs(task.needs),
                task.host,
                task.model,
                task.timeout_s,
                task.deadline,
                task.not_before,
                task.retries,
                key,
                str(task.on_crash),  # the driver is slow with anything but a plain str
                payload,
                task.trace,
                task.output,
            )
        )
        return size

    def _payload(self, task: Task) -> tuple[str | None, int]:
        if task.payload is None:
            return None, 4
        try:
            encoded = encode(task.payload)
        except NOT_JSON as error:
            raise self._refusal(
                f"its payload is not JSON ({error}); use dicts, lists, texts and numbers"
            ) from None
        size = len(encoded)
        if size > self._max_payload_bytes:
            raise self._refusal(
                f"its payload has {size:,} bytes of JSON and {self._max_payload_bytes:,} are allowed;"
                " put the data in a file and send its path"
            )
        if size <= INLINE_BYTES:
            return encoded.decode(), size
        self._batch.long_payloads[len(self._batch.rows)] = encoded.decode()
        return None, size

    def _check_plain(self, task: Task, run: str) -> None:
        """The fields that most tasks of a batch share are checked once for all of them."""
        shared = (
            task.kind,
            task.lane,
            run,
            task.priority,
            task.host,
            task.model,
            task.timeout_s,
            task.retries,
            task.on_crash,
        )
        try:
            if shared not in self._plain:
                self._check_shared(task, run)
                self._plain.add(shared)
        except TypeError:  # unhashable, so it is none of the types that are allowed
            raise self._refusal("its fields hold lists or dicts where texts and numbers belong") from None
        trace = task.trace
        if trace is not None and (not isinstance(trace, str) or context_of(trace) is None):
            raise self._refusal(f"trace is {str(trace)[:80]!r}; it must be a W3C traceparent")
        if task.queued_at or task.deadline is not None or task.not_before is not None:
            for name, at in (
                ("queued_at", task.queued_at),
                ("deadline", task.deadline),
                ("not_before", task.not_before),
            ):
                if at is not None and not _is_number(at):
                    raise self._refusal(f"{name} is {at!r}; it must be a time in seconds since 1970")

    def _check_shared(self, task: Task, run: str) -> None:
        self._check_text("kind", task.kind)
        self._check_text("lane", task.lane)
        self._check_text("run", run)
        for name, text in (("host", task.host), ("model", task.model)):
            if text is not None:
                self._check_text(name, text)
        if isinstance(task.priority, bool) or task.priority not in PRIORITIES:
            raise self._refusal(f"priority is {task.priority!r}; it must be a whole number from 0 to 4")
        if task.timeout_s is not None and not (_is_number(task.timeout_s) and task.timeout_s > 0):
            raise self._refusal(f"timeout_s is {task.timeout_s!r}; it must be a number of seconds above 0")
        retries = task.retries
        if retries is not None and not (
            isinstance(retries, int) and not isinstance(retries, bool) and 0 <= retries < _MAX_INT
        ):
            raise self._refusal(f"retries is {retries!r}; it must be a whole number from 0 up")
        if task.on_crash not in tuple(OnCrash):
            raise self._refusal(f"on_crash is {task.on_crash!r}; it must be retry or block")

    def _check_text(self, name: str, text: object) -> None:
        if not isinstance(text, str) or not text or len(text) > MAX_TEXT:
            shown = repr(text) if len(repr(text)) <= MAX_TEXT else f"{len(repr(text))} characters long"
            raise self._refusal(f"{name} is {shown}; it must be a text of 1 to {MAX_TEXT} characters")
        if not is_text(text):
            raise self._refusal(f"{name} is {text!r}, which is not valid Unicode; write it in UTF-8")

    def _check_id(self, task_id: object) -> None:
        if not isinstance(task_id, str) or not _ID.fullmatch(task_id):
            raise self._refusal(
                f"id is {str(task_id)[:80]!r}; it must be 1 to 200 letters, digits, '.', '_', ':' or '-',"
                " the first a letter or digit"
            )

    def _checked_after(self, task: Task) -> tuple[str, ...]:
        after = task.after
        if isinstance(after, str) or not all(isinstance(name, str) and is_text(name) for name in after):
            raise self._refusal(f"after is {after!r}; it must be a list of task ids")
        return tuple(after)

    def _needs(self, needs: Mapping[str, float]) -> str | None:
        if not isinstance(needs, Mapping) or not all(
            isinstance(unit, str) and unit and is_text(unit) and _is_number(n) and n >= 0
            for unit, n in needs.items()
        ):
            raise self._refusal(f"needs is {needs!r}; it must give each unit a number from 0 up")
        return units_text(needs)

    def _refusal(self, problem: str) -> TaskError:
        """The place is the task's, counted from 1; nothing of the batch is kept."""
        place = len(self._batch.rows)
        task = self._tasks[place]
        if isinstance(task.id, str) and _ID.fullmatch(task.id):
            problem = f"{task.id}: {problem}"
        return TaskRefused(place, len(self._tasks), problem)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -_HUGE < value < _HUGE


def _cycle_refusal(cycle: list[str]) -> TaskError:
    shown = cycle if len(cycle) <= 10 else [*cycle[:5], f"… {len(cycle) - 9} more …", *cycle[-4:]]
    return TaskError(
        f"tasks wait after each other in a circle: {' → '.join(shown)}; take one `after` out of it"
    )


def refuse_cycles(ids: Sequence[str], after: Mapping[int, Iterable[str]]) -> None:
    """A walk along `after` inside the batch; meeting one's own trail again is a cycle."""
    waits = {ids[place]: tuple(after[place]) for place in after}
    cleared: set[str] = set()
    for start in waits:
        if start in cleared:
            continue
        trail = [start]
        on_trail = {start}
        stack = [(start, iter(waits[start]))]
        while stack:
            task, rest = stack[-1]
            for other in rest:
                if other in on_trail:
                    raise _cycle_refusal([*trail[trail.index(other) :], other])
                if other in waits and other not in cleared:
                    stack.append((other, iter(waits[other])))
                    trail.append(other)
                    on_trail.add(other)
                    break
            else:
                stack.pop()
                trail.pop()
                on_trail.discard(task)
                cleared.add(task)
