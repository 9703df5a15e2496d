"""Why a task waited, for its page: a strip of all its time, and each stretch with its one reason."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.diagnosis.timeline.axis import seconds
from penstock.diagnosis.timeline.palette import HOSTS, WAITS
from penstock.diagnosis.why.answer import Blocker, Part, Typical
from penstock.diagnosis.why.holders import Holder
from penstock.diagnosis.why.prediction import Prediction
from penstock.model import Plant
from penstock.web.board.sheet import (
    Node,
    facts,
    moment,
    node,
    prose,
    queue_link,
    rows_of,
    task_link,
)
from penstock.web.board.task_reading import Seen
from penstock.web.board.words import counted

_LEAST_SHARE = 0.004  # of the strip: a stretch that is shorter can still be seen


def why(seen: Seen, plant: Plant) -> Node:
    told = seen.why
    if not told.parts:
        waited = node("p", "It did not wait.", class_="soft")
    else:
        heads = ("Waited for", ">Time", ">Share", "From", "Who held it")
        waited = rows_of("What it waited for", heads, [_stretch(part) for part in told.parts], class_="why")
    return node("div", _strip(seen, plant), waited, _outlook(seen))


# ---- the strip


def _strip(seen: Seen, plant: Plant) -> Node | None:
    spans = _spans(seen, plant)
    total = sum(width for width, _, _, _ in spans)
    if not spans or total <= 0:
        return None
    shares = [max(_LEAST_SHARE, width / total) for width, _, _, _ in spans]
    scale = 100 / sum(shares)
    pieces = [
        node(
            "i",
            node("span", letter) if share * scale > 4 else None,
            class_=look,
            title=words,
            style={"width": f"{share * scale:.3f}%", "background-color": colour},
            key=str(place),
        )
        for place, (share, (_, colour, words, (letter, look))) in enumerate(zip(shares, spans, strict=True))
    ]
    ran_s = sum(width for width, _, _, (_, look) in spans if look == "ran")
    told = f"waited {seconds(seen.why.waited_s)}, ran {seconds(ran_s)}"
    return node(
        "div",
        node("div", *pieces, class_="strip", role="img", aria_label=f"All of its time: {told}"),
        node(
            "p", node("span", "submitted"), node("span", told), node("span", _end(seen)), class_="strip-ends"
        ),
    )


def _end(seen: Seen) -> str:
    return "now" if seen.is_live else "ended"


def _spans(seen: Seen, plant: Plant) -> list[tuple[float, str, str, tuple[str, str]]]:
    """Seconds, colour, words, and letter and look, in the order of time."""
    hosts = {host.name: place for place, host in enumerate(plant.hosts)}
    found: list[tuple[float, tuple[float, str, str, tuple[str, str]]]] = []
    for part in seen.why.parts:
        wait = part.wait
        word = wait.reason.partition(":")[0]
        letter = WAITS.get(word, WAITS[""]).letter
        words = f"waited {seconds(wait.seconds)} for {wait.reason or 'no reason given'}"
        found.append((wait.start, (wait.seconds, _wait_colour(wait.reason), words, (letter, "waited"))))
    for one in seen.attempts:
        end = one.ended_at if one.ended_at is not None else (seen.record.ended_at or seen.why.now)
        ran_s = max(0.0, end - one.started_at)
        colour = f"var(--host-{hosts.get(one.host, 0) % len(HOSTS)})"
        words = f"attempt {one.number} ran {seconds(ran_s)} on {one.host}"
        found.append((one.started_at, (ran_s, colour, words, (str(one.number), "ran"))))
    return [span for _, span in sorted(found, key=lambda one: one[0])]


def _wait_colour(reason: str) -> str:
    word = reason.partition(":")[0]
    return f"var(--wait-{word if word in WAITS and word else 'other'})"


# ---- the table


def _stretch(part: Part) -> Node:
    wait = part.wait
    return node(
        "tr",
        node(
            "th",
            node("i", aria_hidden="true", class_="swatch", style={"background": _wait_colour(wait.reason)}),
            _target(wait.reason),
            scope="row",
            class_="wait",
        ),
        node("td", seconds(wait.seconds), class_="num", data_seconds=f"{wait.seconds:.6f}"),
        node("td", f"{part.share * 100:.0f} %", class_="num"),
        node("td", moment(wait.start)),
        node("td", *(_held(part.holders) or prose(wait.detail)), class_="wide"),
        key=f"{wait.start:.6f}",
    )


def _target(reason: str) -> Node:
    """The reason, with what it names to click on."""
    word, _, target = reason.partition(":")
    if word == "lane" and target:
        return node("span", "lane:", queue_link(target, lane=target))
    if word in ("slots", "rate", "worker") and target:
        names = target.split(",")
        links = [part for name in names for part in (",", queue_link(name, host=name))][1:]
        return node("span", f"{word}:", *links)
    return reason or "no reason given"


def _held(holders: Sequence[Holder]) -> list[Node]:
    told: list[Node] = []
    for holder in holders:
        if told:
            told.append("; ")
        count = f"{counted(holder.number, 'task')} of lane "
        told += [count, queue_link(holder.lane, lane=holder.lane)]
        if holder.tasks:
            told.append(": ")
            told += [part for one in holder.tasks for part in (", ", task_link(one))][1:]
        else:
            told.append(f", {round(holder.average, 1):g} at once on average")
    return told


# ---- what comes


def _outlook(seen: Seen) -> Node:
    told = seen.why
    remedy = told.remedy or (told.course.remedy if told.course is not None else None)
    return facts(
        [
            ("Blocked by", _blockers(told.blocked_by)),
            ("Starts", prose(told.starts_when)),
            ("Would help", node("code", remedy.words) if remedy is not None else None),
            ("Would not help", node("code", ", ".join(told.in_vain)) if told.in_vain else None),
            ("Predicted start", _predicted(told.predicted_start)),
            ("Predicted end", _predicted(told.predicted_end)),
            ("Such tasks wait", _usual(told.typical_wait)),
            ("Such tasks run", _usual(told.typical_run)),
        ],
        class_="facts rows",
    )


def _blockers(blockers: Sequence[Blocker]) -> list[Node]:
    told: list[Node] = []
    for one in blockers:
        named: Node = f"{one.what} {one.name}".strip()
        if one.what == "task":
            named = task_link(one.name)
        elif one.what == "host":
            named = node("span", "host ", queue_link(one.name, host=one.name))
        told.append(
            node(
                "li", named, *prose(f" ({one.detail})" if one.detail else None), key=f"{one.what} {one.name}"
            )
        )
    return [node("ul", *told, class_="plain")] if told else []


def _predicted(predicted: Prediction | None) -> list[Node]:
    if predicted is None:
        return []
    after = " and ".join(predicted.provided)
    if predicted.seconds is None:
        return prose(f"unknown: {f'after {after}; ' if after else ''}{predicted.unknown}")
    least, most = seconds(predicted.least_s or 0.0), seconds(predicted.most_s or 0.0)
    span = "" if least == most else f", most likely {least} to {most}"
    of = f"; from {counted(predicted.attempts, 'recorded attempt')}"
    tail = (of if predicted.attempts else "") + (
        "; the queue is too long to be played to its end" * predicted.cut_short
    )
    if after:
        begin = (
            f"about {seconds(predicted.seconds)} after {after}"
            if predicted.seconds
            else f"as soon as {after}"
        )
        return [f"{begin}{span}{tail}"]
    at = predicted.now + predicted.seconds
    return [f"in about {seconds(predicted.seconds)}{span}, at ", moment(at), tail]


def _usual(typical: Typical | None) -> str | None:
    if typical is None:
        return None
    least, most = seconds(typical.least_s), seconds(typical.most_s)
    span = "" if least == most else f" ({least} to {most})"
    of = "the only one so far" if typical.number == 1 else f"the last {typical.number} of them"
    return f"{seconds(typical.seconds)}{span}, {of}"
