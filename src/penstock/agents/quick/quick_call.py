"""`penstock agent call` the quick way: no more is loaded than a warm call needs, which is the standard library.

    arguments → the config's path → the agent's note ── serve runs ──► POST /api/agents/NAME/call
                                          │
                                          └ an endpoint ── trusted, or validated ──► POST /task in its container

`run` says None to a command line that it does not know, and what is left to do where there is no endpoint: the full
path of cli/agent_call.py does that. When many come at once to an agent that is not there, one of them goes that way
and the others wait here for what comes of it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from penstock.agents import figures, keeper_note, serving
from penstock.agents.endpoints import LEAVING, PAUSED, READY, TRUST_S, Endpoint, EndpointFile, must_be_ours
from penstock.agents.quick import answers, direct_call, known_config
from penstock.agents.quick.answers import Ended, NothingRan
from penstock.agents.quick.direct_call import Asked, NotThere
from penstock.agents.quick.known_config import Known
from penstock.agents.quick.turns import Waiting
from penstock.agents.trail import Trail
from penstock.errors import AgentError, AgentLost, PenstockError, UsageError

INTERRUPTED = 130
_TRIES = 8  # of calls that were not taken in
_LONGEST_S = 86_400.0
_FLAGS = ("--json",)
_VALUES = ("-c", "--config", "--timeout", "--id", "--stdin", "--param-json", "--lane", "--priority")


class NoEndpoint(Exception):
    """There is none that can be called as it is."""


class Unfinished(NamedTuple):
    """What the full path has to do: get the agent going, then call it."""

    asked: Asked
    trail: Trail
    waiting: Waiting | None = None  # whose turn is over when the agent goes


def run(arguments: list[str]) -> int | Unfinished | None:
    """The exit status of `agent call …`, or what is left to do; None: the command line is not known here."""

    def work() -> int | Unfinished | None:
        asked = parsed(arguments)
        return None if asked is None else _run(asked.identified(), Trail(asked.agent))

    return ended_with(work)


T = TypeVar("T")


def ended_with(work: Callable[[], T]) -> T | int:
    """What it comes to, its errors as statuses with one line."""
    try:
        return work()
    except KeyboardInterrupt:
        return answers.say("interrupted", INTERRUPTED)
    except BrokenPipeError:
        return _reader_left()
    except PenstockError as error:
        return answers.say(str(error), error.exit_status)


def _run(asked: Asked, trail: Trail) -> int | Unfinished:
    config = known_config.found_config(asked.config, os.getcwd())
    if config is None or not known_config.is_name(asked.agent):
        return Unfinished(asked, trail)
    agents_dir, known = _known(config, asked.agent)
    if agents_dir is None:
        return Unfinished(asked, trail)
    must_be_ours(agents_dir)
    trail.note("config", path=config, noted=known is not None)
    if (server := serving.found(agents_dir)) is not None:
        from penstock.agents.quick.served_call import through

        try:
            ended = through(server, asked, trail)
        except UsageError as error:
            if serving.is_older_than(agents_dir, config):
                error = UsageError(
                    f"{error}; {config} was changed after `penstock serve` (process {server.pid}) was started: "
                    "restart that for what is new"
                )
            raise error from None
        if ended is not None:
            return finished(asked, ended)
    must_be_served(asked, known)
    waiting = Waiting(agents_dir, asked.agent)
    while True:
        if known is not None:
            if waiting.waited_s is not None:
                trail.figures["lock_wait_s"] = waiting.waited_s
            try:
                return finished(asked, called(asked, agents_dir, known, trail))
            except NoEndpoint:
                pass
        # One goes and makes it; whoever comes meanwhile is told here, for little.
        try:
            if not waiting.for_others(known, trail):
                return Unfinished(asked, trail, waiting)
        except AgentError:
            figures.add(os.path.join(agents_dir, asked.agent), trail.figures, ok=False)
            raise
        known = known_config.read(agents_dir, asked.agent, config)
        must_be_served(asked, known)


def must_be_served(asked: Asked, known: Known | None) -> None:
    """Who is not queued has no place in a queue; and only who sees all calls can keep them apart."""
    if known is not None and known.max_tasks == 1:
        raise AgentError(
            f"agents.{asked.agent}: with max_tasks = 1 each command has a container of its own, which `penstock "
            "serve` sees to, and that does not run on this store; start it, or submit the command as a task"
        )
    for name, given in (("--lane", asked.lane), ("--priority", asked.priority)):
        if given is not None:
            raise UsageError(
                f"agent call: {name} is for calls through `penstock serve`, which does not run on this store; "
                "start it, or leave the option out"
            )


def _known(config: str, agent: str) -> tuple[str | None, Known | None]:
    usual = known_config.usual_agents_dir(config)
    if (known := known_config.read(usual, agent, config)) is not None:
        return usual, known
    agents_dir = known_config.named_agents_dir(config, agent)
    return agents_dir, None if agents_dir is None else known_config.read(agents_dir, agent, config)


def called(asked: Asked, agents_dir: str, known: Known, trail: Trail) -> Ended:
    """The answer of an endpoint that is known; tried again, a few times, where nothing was run."""
    file = EndpointFile(agents_dir, asked.agent)
    tries, until = 0, time.monotonic() + known.queue_s
    while True:
        began = time.perf_counter()
        try:
            ended, is_to_sweep = _of_some_endpoint(asked, file, known, trail)
        except NothingRan as refused:
            tries += refused.code != "busy"  # one that is full is asked again for longer
            if tries >= _TRIES or time.monotonic() > until:
                figures.add(file.folder, trail.figures, ok=False)
                raise AgentError(f"agents.{asked.agent}: {refused}; try again later") from None
            trail.note(f"not taken in: {refused}")
            time.sleep(_pause_s(refused.retry_after_s, tries))
            continue
        except AgentError:
            figures.add(file.folder, trail.figures, ok=False)
            raise
        took_s = time.perf_counter() - began
        trail.note("answered", overhead_s=max(0.0, took_s - ended.spent_s), exit=ended.status)
        figures.add(file.folder, trail.figures, ok=ended.ran)
        if is_to_sweep:
            from penstock.agents.quick.quick_sweep import sweep

            sweep(file, known, trail)
        return ended


def _of_some_endpoint(asked: Asked, file: EndpointFile, known: Known, trail: Trail) -> tuple[Ended, bool]:
    """The answer, and whether it is time to see what nobody needs any more: the engine was asked anyway."""
    doubted: set[str] = set()
    is_to_sweep = False
    while True:
        choice = _choice([one for one in file.read(known.fingerprint) if one.instance not in doubted])
        if choice is None:
            raise NoEndpoint
        with file.using(choice) as endpoint:
            if endpoint is None:
                doubted.add(choice.instance)
                continue
            if not _is_trusted(endpoint, file):
                is_to_sweep = True
                if not _is_usable(endpoint, file, known, trail):
                    doubted.add(choice.instance)
                    continue
            trail.figures.setdefault("hit", True)
            trail.figures.setdefault("pool", "ready")
            trail.note("endpoint", instance=endpoint.instance, at=endpoint.address)
            try:
                ended = direct_call.call(asked, endpoint, known.health, plain=known.plain)
            except NotThere as why:
                trail.note(f"doubted: {why}", hit=False)
                file.doubted(endpoint)
                doubted.add(choice.instance)
                continue
            except NothingRan as refused:
                if refused.code != "draining":
                    raise
                trail.note(f"not taken in: {refused}", hit=False)
                file.mark(endpoint.instance, LEAVING)  # it ends soon: nobody else need come
                doubted.add(choice.instance)
                continue
            except AgentLost:
                file.doubted(endpoint)  # whoever comes next looks first
                raise
            if ended.found_no_room:
                file.doubted(endpoint)
            else:
                file.answered(endpoint)
        return ended, is_to_sweep


def _choice(endpoints: list[Endpoint]) -> Endpoint | None:
    """One that is ready, any of them; else one that can be resumed."""
    for state in (READY, PAUSED):
        if fit := [one for one in endpoints if one.state == state]:
            return fit[os.urandom(1)[0] % len(fit)]
    return None


def _is_trusted(endpoint: Endpoint, file: EndpointFile) -> bool:
    return endpoint.state == READY and file.validated_s_ago(endpoint) < TRUST_S


def _is_usable(endpoint: Endpoint, file: EndpointFile, known: Known, trail: Trail) -> bool:
    from penstock.agents.quick.quick_engine import is_running, resumed

    if endpoint.state == PAUSED:
        with trail.timed("resume"):
            if not resumed(endpoint, file):
                return False
        trail.figures["pool"] = "resumed"
    elif endpoint.state != READY:
        return False
    with trail.timed("validate"):
        # A keeper replaces it in time.
        image = "" if keeper_note.found(file.folder) is not None else known.image
        fine = is_running(endpoint.container, image) and _is_well(endpoint, known)
    if fine:
        file.validated(endpoint)
    else:
        file.doubted(endpoint)
    return fine


def _is_well(endpoint: Endpoint, known: Known) -> bool:
    """It answers, and is neither of no use any more, as it says, nor has done all that one container is for."""
    told = direct_call.health(endpoint, known.health, plain=known.plain)
    if told is None or told.get("status") == answers.UNHEALTHY:
        return False
    counts = [told.get(name) for name in ("done", "failed")]
    done = sum(count for count in counts if isinstance(count, int))
    return not known_config.is_spent(known.max_tasks, known.max_age_s, done, endpoint.created_at)


def _pause_s(asked_s: float | None, tries: int) -> float:
    """Growing, and never the same for all who were refused at once."""
    wished = min(1.0, asked_s) if asked_s is not None else min(0.2, 0.01 * 2**tries)
    return wished * (0.5 + os.urandom(1)[0] / 512)


# ---- what a command line says


def parsed(arguments: list[str]) -> Asked | None:
    """None: it is for the full path, which also says what is wrong with it."""
    words, given, rest = iter(arguments), {}, []
    for word in words:
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name in _VALUES:
            value = value if equals else next(words, "")
            if not value:
                return None
            given["--config" if name == "-c" else name] = value
        elif word in _FLAGS:
            given[word] = "yes"
        elif word.startswith("-") and len(word) > 1:
            return None
        else:
            rest.append(word)
            if len(rest) == 4:  # agent call NAME COMMAND: all else is the command's own
                break
    if len(rest) < 4 or rest[:2] != ["agent", "call"]:
        return None
    return _asked(rest[2], rest[3], list(words), given)


def _asked(agent: str, command: str, params: list[str], given: dict[str, str]) -> Asked | None:
    told: Any = params
    timeout_s = priority = None
    try:
        for text in (agent, command, *params, *given.values()):
            text.encode()
        if "--param-json" in given:
            told = json.loads(given["--param-json"])
            if params or not isinstance(told, dict | list):
                return None
        if "--timeout" in given:
            timeout_s = float(given["--timeout"])
            if not 0 < timeout_s <= _LONGEST_S:
                return None
        if "--priority" in given:
            priority = "01234".index(given["--priority"]) if len(given["--priority"]) == 1 else None
        # Last: what was read from a pipe cannot be read again.
        stdin = None if "--stdin" not in given else text_of(given["--stdin"])
    except (ValueError, RecursionError):
        return None
    if "--priority" in given and priority is None:
        return None
    return Asked(
        agent,
        command,
        told,
        stdin,
        timeout_s,
        given.get("--id"),
        given.get("--lane"),
        priority,
        as_json="--json" in given,
        config=given.get("--config"),
    )


def text_of(path: str) -> str:
    """What a command gets as its stdin: the text of a file, or of our own stdin."""
    try:
        if path == "-":
            return sys.stdin.buffer.read().decode()
        with open(path, "rb") as file:
            return file.read().decode()
    except OSError as error:
        raise UsageError(f"agent call: --stdin: {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"agent call: --stdin: {path}: is not UTF-8 text; send it as base64") from None


# ---- how it ends


def finished(asked: Asked, ended: Ended) -> int:
    if asked.as_json:
        answers.write(1, answers.line(ended.document))
    elif ended.message is not None:
        told = ended.message.removeprefix(f"agents.{asked.agent}: ").removeprefix(f"{asked.agent}: ")
        return answers.say(f"agents.{asked.agent}: {asked.command}: {told}", ended.status)
    return ended.status


def _reader_left() -> int:
    """Whoever read our output has seen enough. Python must not try to write the rest when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0
