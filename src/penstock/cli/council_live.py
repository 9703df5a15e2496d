"""A question while it is answered, on a terminal: who is asked, who answers, and the tail of what each says.

The region at the bottom is redrawn a few times a second, in one write, and never higher than the terminal. An
answer that is complete leaves it, and is printed whole above.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from penstock.cli.render import counted
from penstock.config.councils import Council, Member
from penstock.council.shown import clean, clean_line
from penstock.diagnosis.timeline.axis import seconds

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

_MOST_LINES = 8  # of one member's text
_LEAST_WIDTH = 20
_EVERY_S = 0.1
_TIMES = {1: "once", 2: "twice"}
_STAGES = {
    "retrieve": "looks for passages",
    "members": "answers",
    "review": "reviews",
    "agreement": "measures agreement",
    "synthesis": "sums up",
}


class Tail:
    """The last lines of a text that grows; a line that is full is never wrapped again, so that none jumps."""

    def __init__(self, width: int) -> None:
        self._width = max(_LEAST_WIDTH, width)
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._rest = ""
        self.words = 0
        self._in_word = False

    def add(self, text: str) -> None:
        if not text:
            return
        self.words += len(text.split()) - (self._in_word and text[:1].strip() != "")
        self._in_word = text[-1:].strip() != ""
        *full, self._rest = (self._rest + clean(text)).split("\n")
        for line in full:
            self._lines.extend(self._wrapped(line))
        *full, self._rest = self._wrapped(self._rest) or [""]
        self._lines.extend(full)

    def last(self, count: int) -> list[str]:
        lines = [*self._lines, *([self._rest] if self._rest else [])]
        return lines[-count:] if count > 0 else []

    def _wrapped(self, line: str) -> list[str]:
        from rich.cells import cell_len

        if cell_len(line) <= self._width:
            return [line]
        made, words = [], line.split(" ")
        current = ""
        for word in words:
            joined = f"{current} {word}" if current else word
            if cell_len(joined) <= self._width:
                current = joined
                continue
            if current:
                made.append(current)
            while cell_len(word) > self._width:
                made.append(word[: self._width // 2])
                word = word[self._width // 2 :]
            current = word
        return [*made, current]


class Speaker:
    """One step of a question: a member's answer or review, the search, the summing up."""

    def __init__(self, step: str, stage: str, name: str, width: int) -> None:
        self.step, self.stage, self.name = step, stage, name
        self.state = "queued"
        self.why = ""  # it waits, where that is not for a slot
        self.since = time.monotonic()
        self._width = width
        self.tail = Tail(width)

    def begin(self) -> None:
        self.state = "started"
        self.why = ""
        self.since = time.monotonic()

    def again(self) -> None:
        """It is tried once more: what it said does not count."""
        self.tail = Tail(self._width)

    def wait(self, why: str | None, attempts: int) -> None:
        """It is under way no more, or not yet."""
        if self.state == "started":
            self.again()
        self.state = "queued"
        tried = f"tried {_TIMES.get(attempts, f'{attempts} times')}" if attempts else ""
        self.why = ", ".join(filter(None, [why or ("its turn" if attempts else ""), tried]))


class Board:
    """Folds live events and draws them; others print what is complete. `colour` is what they give to a name."""

    def __init__(
        self, council: Council, console: Console, colour: Callable[[str], str] | None = None
    ) -> None:
        from rich.live import Live

        self._council = council
        self._console = console
        self._colour_of = colour
        self._speakers: dict[str, Speaker] = {}
        self._answered = 0
        self._asked: set[str] = set()
        self._note = "asking"
        self._began = time.monotonic()
        self._drawn_at = 0.0
        self._terminal = ExitStack()
        # What others print meanwhile goes above it; it leaves nothing behind.
        self._live = Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )

    def open(self) -> None:
        self._terminal.enter_context(_no_caret())
        self._live.start()
        self.draw()

    def close(self) -> None:
        self._live.stop()
        self._terminal.close()

    def tell(self, text: str) -> None:
        self._console.print(f"penstock: {text}", soft_wrap=True)

    # ---- events

    def hear(self, event: Mapping[str, Any]) -> None:
        step = str(event.get("step") or "")
        match event.get("event"):
            case "step":
                self._step(step, event)
            case "text" if step in self._speakers:
                speaker = self._speakers[step]
                if speaker.state == "queued":
                    speaker.begin()
                speaker.tail.add(str(event.get("text") or ""))
            case "again" if step in self._speakers:
                self._speakers[step].again()
            case "answer":
                self._answered += bool(event.get("success"))
                self._speakers.pop(f"member/{event.get('name')}", None)
        self.draw_soon()

    def _step(self, step: str, event: Mapping[str, Any]) -> None:
        state = event.get("state")
        stage = str(event.get("stage") or step.partition("/")[0])
        if stage == "members":
            self._asked.add(step)
        if state == "ended":
            self._speakers.pop(step, None)
            return
        if step not in self._speakers:
            name = str(event.get("name") or "")
            self._speakers[step] = Speaker(step, stage, name, self._console.width - 4)
        if state == "started":
            self._speakers[step].begin()
        elif "attempts" in event:
            self._speakers[step].wait(event.get("why"), int(event["attempts"]))
        self._note = ""

    # ---- drawing

    def draw_soon(self) -> None:
        if time.monotonic() - self._drawn_at >= _EVERY_S:
            self.draw()

    def draw(self) -> None:
        self._drawn_at = time.monotonic()
        self._live.update(self._drawn(), refresh=True)

    def _drawn(self) -> RenderableType:
        from rich.console import Group

        height = max(4, self._console.height - 2)
        active = [one for one in self._speakers.values() if one.state == "started"]
        waiting = [one for one in self._speakers.values() if one.state != "started"]
        lines = [self._text(self._head(), "bold")]
        lines += self._waiting(waiting, height // 2)
        room = height - len(lines)
        shown = active if len(active) <= room else active[: max(1, room - 1)]
        tail = max(0, min(_MOST_LINES, (room - len(shown)) // max(1, len(shown))))
        for one in shown:
            lines.append(self._head_of(one))
            lines += [self._text(f"  {line}") for line in one.tail.last(tail)]
        if len(shown) < len(active):
            lines.append(self._text(f"and {len(active) - len(shown)} more", "dim"))
        return Group(*lines)

    def _waiting(self, waiting: Sequence[Speaker], most: int) -> list[Text]:
        told = [one for one in waiting if one.why]
        lines = [f"{self._name(one)}  waits: {clean_line(one.why)}" for one in told]
        if len(told) > max(1, most - 2):
            lines = [f"waiting for their hosts to come up: {self._names(told)}"]
        if slotless := [one for one in waiting if not one.why]:
            lines.append(f"waiting for a slot: {self._names(slotless)}")
        return [self._text(line, "dim") for line in lines]

    def _names(self, some: Sequence[Speaker]) -> str:
        return ", ".join(dict.fromkeys(map(self._name, some)))

    def _head(self) -> str:
        asked = f"{self._answered} of {len(self._asked)} answered" if self._asked else self._note or "asked"
        return f"{self._council.name} · {asked} · {seconds(time.monotonic() - self._began)} · Ctrl-C cancels"

    def _head_of(self, one: Speaker) -> Text:
        words = f" · {counted(one.tail.words, 'word')}" if one.tail.words else ""
        took = seconds(time.monotonic() - one.since)
        line = self._text(self._title(one), f"bold {self._colour(one.name)}")
        line.append(f"  {_STAGES.get(one.stage, one.stage)} · {took}{words}", style="dim")
        return line

    def _colour(self, name: str) -> str:
        return self._colour_of(name) if self._colour_of is not None and name else "cyan"

    def _title(self, one: Speaker) -> str:
        member = self._member(one)
        role = f", {member.role}" if member is not None and member.role and one.stage == "members" else ""
        return clean_line(f"{self._name(one)}{role}")

    def _name(self, one: Speaker) -> str:
        if not one.name:
            return "the library"
        member = self._member(one)
        return clean_line(one.name if member is None else f"{member.emoji} {member.name}".strip())

    def _member(self, one: Speaker) -> Member | None:
        chair = self._council.chair
        return self._council.member(one.name) or (chair if one.name == chair.name else None)

    def _text(self, line: str, style: str = "") -> Text:
        from rich.text import Text

        return Text(line, style=style, no_wrap=True, overflow="ellipsis")


@contextmanager
def _no_caret() -> Iterator[None]:
    """Ctrl-C is not echoed as ^C, which would leave a line of the region behind."""
    import termios

    try:
        before = termios.tcgetattr(sys.stdin)
    except (OSError, ValueError, termios.error):  # it is no terminal
        yield
        return
    during = [*before]
    during[3] &= ~termios.ECHOCTL
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, during)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
