"""`council ask`: a question from the command line to its end, with what is heard of it meanwhile.

Ctrl-C cancels the question, and whatever it has asked of its members; the second time it ends the command at once.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli import render
from penstock.cli.leaving import leave
from penstock.cli.session import APART_S, INTERRUPTED, Interrupts, hearing_interrupts, opened
from penstock.errors import StoreMissing, UnknownTask, UsageError

if TYPE_CHECKING:
    from penstock.cli.council_views import View
    from penstock.client import Client
    from penstock.config import Config
    from penstock.config.councils import Council
    from penstock.council.asking import Wish
    from penstock.council.plan.estimate import Estimate
    from penstock.council.plan.steps import Question
    from penstock.model import TaskRecord
    from penstock.questions import Asking

_TICK_S = 0.25
_SHOWN_LETTERS = 80  # of a question that another follows
_FORMS = (".json", ".md", ".html", ".htm")


@dataclass(frozen=True, slots=True)
class Shown:
    """What is printed, and what is written where."""

    as_json: bool = False
    as_events: bool = False
    out: Path | None = None


def query_of(text: str) -> str:
    """What is asked; - is what stdin says."""
    if text != "-":
        return text
    told = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not told.strip():
        raise UsageError("council ask: stdin has no question; write one, or give it as an argument")
    return told


def must_fit(out: Path | None) -> None:
    """Told before anybody is asked: an answer that cannot be written has cost as much."""
    if out is None:
        return
    if out.suffix not in _FORMS:
        raise UsageError(
            f"council ask: --out: {str(out)!r} must end with .json (the record), .md or .html (a report)"
        )
    if out.is_dir() or not os.access(out.parent, os.W_OK):
        raise UsageError(
            f"council ask: --out: {str(out)!r} cannot be written; name a file in a folder of yours"
        )


async def last_conversation(config: Config, council: Council) -> str:
    """That of the newest question that was answered, for one that follows it. Which one is said."""
    from penstock.council.asking import query_in
    from penstock.council.conversations import newest_answered
    from penstock.store.base import TaskFilter

    newest: list[TaskRecord] = []
    with suppress(StoreMissing):
        async with opened(config, stand_in=False) as client:
            newest = await client.tasks(TaskFilter(kind=council.kind, limit=1, newest=True))
            found = await newest_answered(client.tasks, council.kind)
    if not newest:
        raise UnknownTask(f"--follow-up: council {council.name!r} was asked nothing yet; leave it out")
    last = newest[0]
    if found is None:
        raise UnknownTask(
            f"--follow-up: no question of a conversation with council {council.name!r} is answered: "
            f"the newest, {last.task.id}, is {_standing(last)}; leave it out"
        )
    followed = found.task
    instead = "" if followed.id == last.task.id else f"; the newest, {last.task.id}, is {_standing(last)}"
    asked = render.one_line(query_in(followed.payload))[:_SHOWN_LETTERS]
    render.note(f"follows {followed.id}, {asked!r}{instead}")
    return followed.run


def _standing(record: TaskRecord) -> str:
    """Why it is not followed."""
    from penstock.council.conversations import conversation_of

    return str(record.state) if conversation_of(record.task) is not None else "of no conversation"


def begun(conversation: str) -> str:
    return f"begins conversation {conversation!r}: no earlier question of this council is in it"


async def detach(config: Config, council: Council, wish: Wish, *, as_json: bool) -> int:
    """Keep the question and leave."""
    async with opened(config, makes=True) as client:
        asking = client.asking(council.name, wish.query, **wish.options())
        id = await asking.submit()
        epoch = (await client.snapshot()).epoch
        nobody = epoch is None or not epoch.owner.works_on(asking.run)
    if wish.conversation is not None and asking.begins_conversation:
        render.note(begun(wish.conversation))
    if as_json:
        render.emit({"id": id, "council": council.name})
    else:
        render.say(id)
    if nobody:
        render.note("no dispatcher is running; `penstock work --drain` answers it, or `penstock serve`")
    return 0


async def ask(config: Config, council: Council, wish: Wish, shown: Shown) -> int:
    from penstock.cli.council_views import choose
    from penstock.cli.logs import telling
    from penstock.council.conversations import new_conversation
    from penstock.wiring import Dispatching

    view = choose(council, as_json=shown.as_json, as_events=shown.as_events)
    with ExitStack() as stack:
        interrupts = stack.enter_context(hearing_interrupts(APART_S))
        stack.enter_context(telling(view.tell))
        stack.callback(view.close)
        view.open()
        # Only its own conversation: what others have queued is not for this command to start.
        run = new_conversation() if wish.conversation is None else wish.conversation
        ours = Dispatching(command="penstock council ask", only_run=run)
        async with opened(config, dispatching=ours) as client:
            asking = client.asking(council.name, wish.query, **replace(wish, conversation=run).options())
            follower = _Follower(client, asking, view, wish.conversation)
            last = await follower.follow(interrupts)
            status = _over(last, asking, view, shown, interrupted=follower.interrupted)
            view.close()
            await leave(client, asking.run, interrupts)
    return status


class _Follower:
    def __init__(self, client: Client, asking: Asking, view: View, conversation: str | None) -> None:
        self._client = client
        self._conversation = conversation  # that was named
        self._asking = asking
        self._view = view
        self._last: Mapping[str, Any] = {}
        self.interrupted = False

    async def follow(self, interrupts: Interrupts) -> Mapping[str, Any]:
        """The last event; nothing where somebody would not wait for it."""
        try:
            async with asyncio.TaskGroup() as self._group:
                self._listening = self._group.create_task(self._listen(interrupts))
                ticking = self._group.create_task(self._tick())
                await asyncio.wait([self._listening])
                ticking.cancel()
                interrupts.tell(lambda _: None)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        return {} if self._listening.cancelled() else self._last

    async def _listen(self, interrupts: Interrupts) -> None:
        async for event in self._asking:
            if not self._last:  # it is kept: from now on there is something to cancel
                interrupts.tell(self._interrupt)
                if self._conversation is not None and self._asking.begins_conversation:
                    self._view.tell(begun(self._conversation))
            self._view.hear(event)
            self._last = event

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._view.tick()

    def _interrupt(self, _: int) -> None:
        if not self.interrupted:
            self.interrupted = True
            self._view.tell("cancelling the question; Ctrl-C again does not wait for that")
            self._group.create_task(self._cancel())
        else:
            self._group.create_task(self._abandon())

    async def _cancel(self) -> None:
        await self._asking.cancel()

    async def _abandon(self) -> None:
        await self._client.stop_dispatching(put_back=True)
        self._listening.cancel()


def _over(last: Mapping[str, Any], asking: Asking, view: View, shown: Shown, *, interrupted: bool) -> int:
    record = last.get("record")
    if isinstance(record, Mapping):
        view.record(record)
        if shown.out is not None:
            write(shown.out, record)
    view.close()
    how = last.get("event")
    if how == "done":
        return 0
    if interrupted and how in ("cancelled", None):
        render.note(f"question {asking.id} is {'cancelled' if how else 'being cancelled'}")
        return INTERRUPTED
    error = render.one_line(str(last.get("error") or "no reason was given"))
    if isinstance(record, Mapping) and not record.get("success_count") and record.get("responses"):
        error = "no member answered; why is told above"  # of each of them, and once is enough
    render.note(f"question {asking.id} {how}: {error}")
    return 1


def write(out: Path, record: Mapping[str, Any]) -> None:
    """By its name: the record as JSON, or a report of it."""
    import msgspec

    from penstock.cli.files import replacing
    from penstock.council.recorded import read_record

    if out.suffix == ".json":
        data = msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
    elif out.suffix == ".md":
        from penstock.council.report import markdown

        data = markdown(read_record(record, "the answer")).encode("utf-8", "replace")
    else:
        from penstock.council.report_page import page

        data = page(read_record(record, "the answer")).encode("utf-8", "replace")
    with replacing(out) as file:
        file.write(data)


# ---- what it would cost


async def estimated(config: Config, council: Council, question: Question) -> Estimate:
    """With the turns that it would be told, and the times that earlier questions took."""
    from penstock.council.conversations import turns_before
    from penstock.council.past import seconds_of
    from penstock.council.plan.estimate import estimate, prices_of

    async with opened(config) as client:
        turns = await turns_before(client.tasks, council.kind, question.conversation, time.time())
        seconds = await seconds_of(client.tasks, council.kind)
    return estimate(
        council,
        question.mode,
        question.members,
        question.query,
        prices_of(council, config.plant.hosts),
        use_rag=question.use_rag,
        turns=turns,
        instructions=question.instructions,
        seconds=seconds,
    )


def print_estimate(council: Council, made: Estimate) -> None:
    rows = [
        [
            str(one.stage),
            _range(one.calls, one.calls_most),
            _range(round(one.tokens.expected), round(one.tokens.most)),
            _usd(one.usd.expected),
            _usd(one.usd.most),
        ]
        for one in made.stages
    ]
    total = [
        "all",
        _range(made.calls, made.calls_most),
        _range(round(made.tokens.expected), round(made.tokens.most)),
        _usd(made.usd),
        _usd(made.usd_most),
    ]
    render.print_table(("stage", ">calls", ">tokens", ">USD expected", ">USD at most"), [*rows, total])
    if made.seconds is not None:
        render.say(f"about {render.seconds(made.seconds)} where every host is free")
    if made.unpriced:
        render.say(
            f"no price is known of {', '.join(made.unpriced)}: counted as free; see [prices.NAME] of the config"
        )
    if made.limit_usd is not None:
        over = " and would be refused" if made.usd > made.limit_usd else ""
        render.say(f"the limit of mode {made.mode} is {_usd(made.limit_usd)} USD{over}")
    render.say(f"nothing was asked of {council.name}")


def _range(expected: int, most: int) -> str:
    return f"{expected:,}" if expected == most else f"{expected:,} to {most:,}"


def _usd(value: float) -> str:
    return f"{value:.4f}"
