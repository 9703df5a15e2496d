"""What a council was asked before: pages of questions, the newest first, of all or of one conversation."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlencode

from nicegui.element import Element

from penstock.client import Client
from penstock.config.councils import Council
from penstock.council.conversations import conversation_of
from penstock.council.shown import clean_line
from penstock.model import TaskRecord
from penstock.store.base import TaskFilter
from penstock.web.board.components import Moment
from penstock.web.board.elements import inside, tag
from penstock.web.council_records import question_entry

PAGE = 20
_LOOK, _MOST_LOOKS = 100, 10  # questions that are looked at for words
_QUERY_LETTERS = 160


class Sought(NamedTuple):
    """Which questions, as an address says it."""

    council: str
    conversation: str | None = None
    words: str = ""
    before: int | None = None  # the number of a question: only older ones

    def address(self, **changed: object) -> str:
        asked = {**self._asdict(), **changed}
        return "/board/council?" + urlencode({name: value for name, value in asked.items() if value})


class Found(NamedTuple):
    questions: list[TaskRecord]
    more: int | None  # where older ones begin
    looked_at: int | None = None  # how many, where words were looked for and there may be more


async def found(client: Client, council: Council, sought: Sought) -> Found:
    if not sought.words:
        records = await _page(client, council, sought.conversation, PAGE, sought.before)
        more = records[-1].number if len(records) == PAGE else None
        return Found([one for one in records if _is_of(one, sought.conversation)], more)
    kept: list[TaskRecord] = []
    after = sought.before
    for _ in range(_MOST_LOOKS):
        records = await _page(client, council, sought.conversation, _LOOK, after)
        for one in records:
            after = one.number
            if _is_of(one, sought.conversation) and _has(one, council, sought.words):
                kept.append(one)
                if len(kept) == PAGE:
                    return Found(kept, after)
        if len(records) < _LOOK:
            return Found(kept, None)
    return Found(kept, after, _MOST_LOOKS * _LOOK)


async def _page(
    client: Client, council: Council, conversation: str | None, limit: int, before: int | None
) -> list[TaskRecord]:
    return await client.tasks(
        TaskFilter(run=conversation, kind=council.kind, limit=limit, after=before, newest=True)
    )


def _is_of(record: TaskRecord, conversation: str | None) -> bool:
    return conversation in (None, conversation_of(record.task))


def _has(record: TaskRecord, council: Council, words: str) -> bool:
    """Whether it is the question of that id, or asks about that."""
    entry = question_entry(council, record)
    return record.task.id.startswith(words) or words.casefold() in entry["query"].casefold()


# ---- shown


def show(council: Council, sought: Sought, found: Found, current: str | None) -> None:
    """Into the element that is open."""
    if sought.conversation is not None:
        with tag("p", "Of one conversation. ", class_="told"):
            tag("a", "All questions", href=sought.address(conversation=None, before=None))
    if not found.questions:
        _nothing(sought)
    else:
        with tag("ol", class_="history"):
            for record in found.questions:
                _entry(council, sought, record, is_current=record.task.id == current)
    if found.looked_at is not None:
        tag("p", f"The latest {found.looked_at:,} questions were looked at.", class_="told")
    if found.more is not None:
        tag("a", "Older questions", href=sought.address(before=found.more), class_="older")


def search_form(sought: Sought) -> None:
    """A form of its own, which works by address alone."""
    with tag("form", method="get", action="/board/council", role="search", class_="seek"):
        tag("input", type="hidden", name_="council", value=sought.council)
        if sought.conversation is not None:
            tag("input", type="hidden", name_="conversation", value=sought.conversation)
        with tag("div", class_="field"):
            tag("label", "Words of a question, or how its id begins", for_="seek-words", class_="unseen")
            tag(
                "input",
                type="search",
                id="seek-words",
                name_="words",
                value=sought.words,
                placeholder="Words, or an id",
                maxlength="200",
            )
        tag("button", "Find", type="submit", class_="button")


def _nothing(sought: Sought) -> None:
    if sought.words:
        tag("p", "No question has these words.", class_="told")
    else:
        tag("p", "Nothing was asked yet. Ask above, or by", class_="told")
        tag("pre", f'penstock council ask --council {sought.council} "…"')


def _entry(council: Council, sought: Sought, record: TaskRecord, *, is_current: bool) -> None:
    entry = question_entry(council, record)
    own = f"/board/council?{urlencode({'council': council.name, 'question': record.task.id})}"
    with tag("li"):
        text = clean_line(entry["query"], _QUERY_LETTERS) or "(no question)"
        tag("a", text, href=own, aria_current="true" if is_current else None)
        with tag("p", class_="told"):
            Moment(record.task.queued_at)
            tag("span", f" · {' · '.join(_figures(entry))}")
            if sought.conversation is None and entry["conversation"] is not None:
                tag("span", " · ")
                _to_conversation(sought, entry["conversation"])


def _figures(entry: dict[str, object]) -> list[str]:
    told = [str(entry["state"]), str(entry["mode"])]
    if entry["success_count"] is not None:
        told.append(f"{entry['success_count']} of {entry['total_fighters']} answered")
    return told


def _to_conversation(sought: Sought, conversation: str) -> Element:
    address = sought.address(conversation=conversation, before=None, words="")
    return inside(tag("span"), tag, "a", "conversation", href=address)
