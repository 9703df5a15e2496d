"""`why`: of a task in a line and a table; of a run, a lane or a host summed up."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import render
from penstock.cli.session import TASK_HELP, config_of, finish, one_of, opened
from penstock.errors import UsageError
from penstock.lifecycle import ENDED
from penstock.model import State, name_in_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.config import Config
    from penstock.diagnosis.why.answer import Blocker, Typical, Why
    from penstock.diagnosis.why.prediction import Prediction
    from penstock.diagnosis.why.remedies import Remedy
    from penstock.diagnosis.why.waiting import ReasonSum, Waiting

app = typer.Typer()

_MOST_REASONS = 3
_MOST_BLOCKERS = 4
_DETAIL_WIDTH = 120
_TRIFLE = 0.01  # of how long it ran
_STATES = (*sorted(ENDED, key=list(State).index), State.RUNNING, State.QUEUED)
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


@app.command(
    "why",
    epilog="\b\nExamples:\n"
    "  penstock why 1m7f\n"
    "  penstock why 1m7f --json | jq .predicted_start\n"
    "  penstock why --run last\n"
    "  penstock why --lane chat --since 15m\n"
    "  penstock why --host fenrir",
)
def why(
    context: typer.Context,
    task: Annotated[str | None, typer.Argument(metavar="TASK", help=TASK_HELP)] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Sum up a run; `last` is the newest.")
    ] = None,
    lane: Annotated[str | None, typer.Option("--lane", metavar="LANE", help="Sum up a lane.")] = None,
    host: Annotated[str | None, typer.Option("--host", metavar="HOST", help="Sum up a host.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="How far back for a lane or host: 90s, 15m, 1h, 2d; 1h."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Say why a task waits, waited or still runs, and when it will start or end.

    A question to a council only waits for its steps: what these do and wait for, or where its time went.

    Each stretch of its queue time has exactly one reason, and they add up to the wait. With --run, --lane or
    --host: where all the waiting went, and what would help most.
    """
    chosen = [one for one in (task, run, lane, host) if one is not None]
    if len(chosen) != 1:
        raise UsageError("why: name one task, or one of --run, --lane, --host; see `penstock why --help`")
    if since is not None and lane is None and host is None:
        raise UsageError("why: --since goes with --lane or --host; a task or a run is told whole")
    config = config_of(context)
    if task is not None:
        return finish(_task(config, task, as_json))
    within_s = 3600.0 if since is None else _seconds(since)
    return finish(_many(config, run, lane, host, within_s, as_json))


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if match is None or float(match[1]) <= 0:
        raise UsageError(f"--since: {text!r} must be a time such as 90s, 15m, 1h or 2d")
    return float(match[1]) * _UNITS[match[2]]


# ---- one task


async def _task(config: Config, task: str, as_json: bool) -> int:
    async with opened(config) as client:
        told = await client.why(task)
    if as_json:
        render.emit(told.as_record())
        return 0
    render.say("\n".join(_folded(in_short(told))))
    if facts := _facts(told):
        render.say()
        _print_facts(facts)
    if told.course is not None:
        from penstock.cli.why_question import print_course

        print_course(told.course)
    if told.parts and not _is_trifle(told):
        from penstock.cli.details import print_waits

        render.say()
        print_waits([part.wait for part in told.parts])
    return 0


def _is_trifle(told: Why) -> bool:
    """What a question waited itself, beside the time that its steps took."""
    return told.course is not None and told.waited_s < _TRIFLE * (told.ran_s or 0.0)


def in_short(told: Why) -> str:
    """The whole story in a line: what became of it, what it waited for, what comes."""
    record = told.record
    task, state = record.task.name or record.task.id, record.state
    waited = _waited(told)
    if state == "queued":
        comes = _comes(told.predicted_start, "starts") + _silence(told)
        if not told.parts:
            return f"{task} has just been queued" + comes
        return f"{task} has waited {waited}{comes}"
    if told.interrupted:
        return f"{task} was running on {record.host} when its dispatcher was lost; {_retold(waited, told)}"
    if record.is_delayed:
        has = f"{task} has its slot on {record.host} and waits for a worker"
        return f"{has}; it has waited {waited}{_silence(told)}"
    if state == "running":
        ran = render.seconds(told.ran_s or 0.0)
        comes = _comes(told.predicted_end, "ends")
        if told.stopping_since is not None:
            ago = render.seconds(told.now - told.stopping_since)
            comes = f"; it was told to end {ago} ago, and does when it can"
        if told.host_down is not None:
            since = render.moment(told.host_down.since)
            comes += f"; {record.host} is down since {since}, so how it fares is not known"
        if told.undispatched_since is not None:
            since = render.moment(told.undispatched_since)
            comes += f"; no dispatcher has run since {since}, so how it fares is not known"
        if told.course is not None:
            return f"{task} has run for {ran}: {_steps(told)}{comes}{_own_wait(waited, told)}"
        return f"{task} has run for {ran} on {record.host}{comes}; {_retold(waited, told)}"
    if record.attempts == 0:
        return f"{task} is {state} and never ran; {_retold(waited, told)}"
    if told.course is not None:
        ran = render.seconds(told.ran_s or 0.0)
        return f"{task} is {state} after {ran}: {_steps(told)}{_own_wait(waited, told)}"
    return f"{task} is {state}; {_retold(waited, told)}"


def _silence(told: Why) -> str:
    if told.silent_since is None:
        return ""
    return f"; its dispatcher has written nothing since {render.moment(told.silent_since)}"


def _steps(told: Why) -> str:
    from penstock.cli.why_question import in_words

    assert told.course is not None
    return in_words(told.course)


def _own_wait(waited: str, told: Why) -> str:
    return "" if _is_trifle(told) else f"; {_retold(waited, told)}"


def _retold(waited: str, told: Why) -> str:
    return f"it waited {waited}" if told.parts else "it did not wait"


def _waited(told: Why) -> str:
    reasons = told.reasons
    parts = []
    for place, (reason, seconds, detail) in enumerate(reasons[:_MOST_REASONS]):
        text = reason if len(reasons) == 1 else f"{render.seconds(seconds)} {reason}"
        if detail and place == 0:
            text += f" ({render.one_line(_in_brief(reason, detail), _DETAIL_WIDTH)})"
        parts.append(text)
    if len(reasons) > _MOST_REASONS:
        parts.append(f"and {render.counted(len(reasons) - _MOST_REASONS, 'more reason')}")
    return f"{render.seconds(told.waited_s)}: {', '.join(parts)}" if parts else ""


def _in_brief(reason: str, detail: str) -> str:
    """Why a gate's reading failed, without what was read and what to do: a line has no room for them. Nor for where
    a store is that everybody here has."""
    if reason == "store-down":
        where, _, cause = detail.partition(": ")
        return cause if cause and "://" in where else detail
    _, failed, cause = detail.partition(" failed: ")
    return f"not read: {cause.partition('; ')[0]}" if failed and reason.startswith("gate:") else detail


def _comes(predicted: Prediction | None, verb: str) -> str:
    if predicted is None or predicted.seconds is None:
        return ""
    if predicted.provided:
        return f"; {verb} {_about(predicted)} {_joined(predicted.provided)}"
    return f"; {verb} in about {render.seconds(predicted.seconds)}"


def _about(predicted: Prediction) -> str:
    if not predicted.seconds:
        return "as soon as"
    return f"about {render.seconds(predicted.seconds)} after"


def _joined(provided: Sequence[str]) -> str:
    return " and ".join(provided)


def _facts(told: Why) -> list[tuple[str, str]]:
    facts = [
        *_of_steps(told),
        ("its host", _host_down(told)),
        ("its dispatcher", _undispatched(told)),
        ("blocked by", _blockers(told.blocked_by)),
        ("starts", told.starts_when or ""),
        ("would help", _words(told.remedy)),
        ("would not help", ", ".join(told.in_vain)),
        ("predicted start", predicted_text(told.predicted_start)),
        ("predicted end", predicted_text(told.predicted_end)),
        ("such tasks run", _usual(told.typical_run)),
        ("such tasks wait", _usual(told.typical_wait, told.waited_s)),
    ]
    if told.interrupted:
        facts.insert(
            0, ("starts", "again when a dispatcher runs: `penstock work`; or is blocked, if on_crash says so")
        )
    return [(name, text) for name, text in facts if text]


def _words(remedy: Remedy | None) -> str:
    return "" if remedy is None else remedy.words


def _host_down(told: Why) -> str:
    if told.host_down is None:
        return ""
    since, detail = told.host_down
    why = f": {detail}" if detail else ""
    goes_on = "what runs there goes on, and is found again when it is back"
    return f"is down since {render.moment(since)}{why}; {goes_on}"


def _undispatched(told: Why) -> str:
    if told.undispatched_since is None:
        return ""
    goes_on = f"what runs on {told.record.host} goes on there, and how it fares is known when one runs"
    return f"is gone since {render.moment(told.undispatched_since)}; {goes_on}: `penstock work`, or a standby"


def _of_steps(told: Why) -> list[tuple[str, str]]:
    from penstock.cli.why_question import facts

    return [] if told.course is None else facts(told.course)


def _print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Names and texts; a long text goes on under itself."""
    margin = max(len(name) for name, _ in facts) + 2
    for name, text in facts:
        for place, line in enumerate(_folded(text, margin)):
            render.say(f"{name if place == 0 else '':<{margin}}{line}")


def _folded(text: str, margin: int = 0) -> list[str]:
    """Lines that fit a terminal; one line for whoever else reads them."""
    import textwrap

    out = render.console()
    if not out.is_terminal:
        return [render.one_line(text)]
    width = max(40, out.width - 1) - margin
    return textwrap.wrap(render.one_line(text), width, break_long_words=False, break_on_hyphens=False)


def _blockers(blockers: Sequence[Blocker]) -> str:
    told = [
        " ".join(filter(None, (one.what, one.name, f"({one.detail})" if one.detail else "")))
        for one in blockers[:_MOST_BLOCKERS]
    ]
    if len(blockers) > _MOST_BLOCKERS:
        told.append(f"and {len(blockers) - _MOST_BLOCKERS} more")
    return ", ".join(told)


def predicted_text(predicted: Prediction | None) -> str:
    if predicted is None:
        return ""
    if predicted.seconds is None:
        after = f"after {_joined(predicted.provided)}; " if predicted.provided else ""
        return f"unknown: {after}{predicted.unknown}"
    least, most = render.seconds(predicted.least_s or 0.0), render.seconds(predicted.most_s or 0.0)
    span = "" if least == most else f" (most likely {least} to {most})"
    seconds = render.seconds(predicted.seconds)
    if predicted.provided:
        text = f"{_about(predicted)} {_joined(predicted.provided)}{span}"
    else:
        text = f"in about {seconds}{span}, at {render.moment(predicted.now + predicted.seconds)[:-4]}"
    counted = render.counted(predicted.attempts, "recorded attempt")
    cut = "; the queue is too long to be played to its end" if predicted.cut_short else ""
    return f"{text}; from {counted}{cut}" if predicted.attempts else text + cut


def _usual(typical: Typical | None, this_s: float = 0.0) -> str:
    if typical is None:
        return ""
    longer = "; this one longer than 9 in 10" if this_s > typical.most_s and typical.number >= 10 else ""
    least, most = render.seconds(typical.least_s), render.seconds(typical.most_s)
    span = "" if least == most else f" ({least} to {most})"
    of = "the only one so far" if typical.number == 1 else f"the last {typical.number} of them"
    return f"{render.seconds(typical.seconds)}{span}, {of}{longer}"


# ---- many


async def _many(
    config: Config, run: str | None, lane: str | None, host: str | None, within_s: float, as_json: bool
) -> int:
    if host is not None:
        one_of("--host", host, [one.name for one in config.plant.hosts])
    async with opened(config) as client:
        if run is not None:
            told = await client.why_run(await client.run_named(run))
        elif lane is not None:
            known = [one.name for one in config.plant.lanes]
            told = await client.why_lane(lane, within_s=within_s)
            if not told.tasks:
                one_of("--lane", lane, known)
        else:
            assert host is not None
            told = await client.why_host(host, within_s=within_s)
    if as_json:
        render.emit(told.as_record())
    else:
        _print_many(told)
    return 0


def _print_many(told: Waiting) -> None:
    render.say("\n".join(_folded(many_in_short(told))))
    facts = [
        *_of_host(told),
        ("would help", _words(told.remedy)),
        ("would not help", ", ".join(told.in_vain)),
        ("its calls", calls_text(told)),
        ("predicted end", predicted_text(told.predicted_end)),
        ("looked at", f"the newest {told.tasks} tasks; there were more" if told.cut_short else ""),
    ]
    if shown := [(name, text) for name, text in facts if text]:
        render.say()
        _print_facts(shown)
    if told.reasons:
        render.say()
        rows = [_reason_row(one) for one in told.reasons]
        render.print_table(("waited for", ">time", ">share", ">tasks", "lanes"), rows, flexible="lanes")
        render.say()
        run = told.name if told.scope == "run" else ""
        longest = [
            (name_in_run(one.task_id, run), str(one.state), render.seconds(one.waited_s), one.reason)
            for one in told.longest
        ]
        render.print_table(("longest", "state", ">waited", "mostly for"), longest, flexible="mostly for")


def _of_host(told: Waiting) -> list[tuple[str, str]]:
    if told.host is None:
        return []
    host = told.host
    fit = f"{render.counted(host['queued'], 'queued task')} could run there"
    now = f"{host['state']}, {host['active']} of {render.counted(host['slots'], 'slot')} in use; {fit}"
    return [("now", now), ("takes", host["takes"])]


def calls_text(told: Waiting) -> str:
    """What the attempts of a run waited for themselves: its calls of models."""
    if told.calls is None or not told.calls.reasons:
        return ""
    first = told.calls.reasons[0]
    helps = f"; would help {told.calls.remedy.words}" if told.calls.remedy else ""
    waited = (
        f"{render.seconds(told.calls.waited_s)} together, {render.percent(first.share)} for {first.reason}"
    )
    return f"{render.counted(told.calls.tasks, 'call')} of models waited {waited}{helps}"


def many_in_short(told: Waiting) -> str:
    states = ", ".join(f"{told.states[state]} {state}" for state in _STATES if told.states[state])
    who = f"{told.scope} {told.name}"
    if told.scope != "run":
        who += f" in the last {render.seconds(told.now - told.since)}"
    if not told.tasks:
        return f"{who}: no task waited or ran"
    tail = _comes(told.predicted_end, "ends")
    if told.use is not None:
        tail = f"; {render.percent(told.use)} of its slots were in use while it had work"
    tasks = f"{render.counted(told.tasks, 'task')} ({states})"
    if not told.reasons:
        return f"{who}: {tasks}, none waited{' for it' if told.scope == 'host' else ''}{tail}"
    first = told.reasons[0]
    return (
        f"{who}: {tasks} waited {render.seconds(told.waited_s)} together, "
        f"{render.percent(first.share)} for {first.reason}{tail}"
    )


def _reason_row(one: ReasonSum) -> tuple[str, ...]:
    lanes = ", ".join(f"{lane} {render.seconds(seconds)}" for lane, seconds in list(one.lanes.items())[:4])
    return one.reason, render.seconds(one.seconds), render.percent(one.share), str(one.tasks), lanes
