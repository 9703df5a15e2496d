"""Who answers in a council, and who sums up: their tables → Member, and back.

A chair is a member, one with a table of its own, or but a name: then it speaks by the first member's model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from penstock.config import keys
from penstock.config.councils import Council, Member
from penstock.config.problems import kind_alone
from penstock.config.tables import Table

_USUAL = Member("")
_MEMBER_LIKE = '{ name = "GOKU", model = "qwen2.5-32b" }'
_JOINER = "\u200d"  # an emoji may be several, joined by this; it counts as no printable character
_NAME_RULE = (
    f"1 to {keys.MAX_MEMBER_NAME} characters on one line, without '/' and ',', and no blank at either end"
)


def found_member(name: str, members: Sequence[Member]) -> Member | None:
    """The member of that name, whichever way its letters are written."""
    return next((one for one in members if one.name.casefold() == name.casefold()), None)


def read_members(table: Table) -> tuple[Member, ...]:
    given = table.raw.get("members")
    if "members" not in table or given in ([], ()):
        message = f"has no members; add some: [[{'.'.join(map(str, table.path))}.members]] with a name"
        table.refuse(message, *(("members",) if "members" in table else ()))
        return ()
    if not isinstance(given, list | tuple) or len(given) > keys.MAX_MEMBERS:
        most = f"at most {keys.MAX_MEMBERS} tables like {_MEMBER_LIKE}"
        what = f"{len(given)} of them" if isinstance(given, list | tuple) else kind_alone(given)
        table.refuse(f"must be a list of {most}, not {what}", "members")
        return ()
    found: dict[str, Member] = {}
    for number, one in enumerate(given):
        if not isinstance(one, Mapping) or not all(isinstance(key, str) for key in one):
            table.refuse(f"must be a table like {_MEMBER_LIKE}, not {kind_alone(one)}", "members", number)
            continue
        inner = Table(one, (*table.path, "members", number), table.problems)
        member = _read_member(inner)
        if member is not None and found.setdefault(member.name.casefold(), member) is not member:
            inner.refuse("another member has this name; choose another", "name")
    return tuple(found.values())


def read_chair(table: Table, members: Sequence[Member]) -> Member:
    """The first member's, where none is named."""
    first = members[0] if members else _USUAL
    given = table.raw.get("chair")
    if "chair" not in table:
        return first
    if isinstance(given, Mapping):
        inner = table.table("chair", _MEMBER_LIKE)
        chair = None if inner is None else _read_member(inner)
        if chair is not None and (member := found_member(chair.name, members)) is not None:
            message = f'a member has this name; write chair = "{member.name}", or choose another'
            table.refuse(message, "chair", "name")
        return chair or first
    name = _member_name(table, "chair")
    if name is None:
        return first
    return found_member(name, members) or Member(
        name=name,
        model=first.model,
        kind=first.kind,
        host=first.host,
        max_tokens=first.max_tokens,
        timeout_s=first.timeout_s,
        context_tokens=first.context_tokens,
    )


def _read_member(table: Table) -> Member | None:
    """None where it has no name that it could be known by."""
    table.only(keys.MEMBER)
    if "name" not in table:
        table.refuse(f"has no name; add one, like {_MEMBER_LIKE}")
    name = _member_name(table, "name") if "name" in table else None
    most = table.whole("max_tokens", _USUAL.max_tokens, keys.TOKENS_HELD)
    held = table.whole("context_tokens", _USUAL.context_tokens, keys.TOKENS_HELD)
    if most >= held:
        message = (
            f"an answer of {most} tokens leaves no room for the question in {held}; lower it, or say what "
            "the model holds: context_tokens"
        )
        table.refuse(message, "max_tokens")
    member = Member(
        name=name or "",
        emoji=_prose(table, "emoji", keys.MAX_EMOJI),
        role=_prose(table, "role", keys.MAX_ROLE),
        persona=_prose(table, "persona", keys.MAX_PERSONA, lines=True),
        model=_model(table),
        kind=table.name("kind", _USUAL.kind),
        host=table.name("host", None),
        temperature=table.number("temperature", None, keys.TEMPERATURE),
        max_tokens=most,
        timeout_s=table.number("timeout_s", _USUAL.timeout_s, keys.SECONDS),
        weight=table.number("weight", _USUAL.weight, keys.WEIGHT),
        context_tokens=held,
    )
    return None if name is None else member


def _member_name(table: Table, key: str) -> str | None:
    value = table.raw.get(key)
    if not isinstance(value, str):
        what = f", or a table like {_MEMBER_LIKE}" if key == "chair" else ""
        table.refuse(f"must be a name in quotes{what}, not {kind_alone(value)}", key)
    elif not (
        0 < len(value) <= keys.MAX_MEMBER_NAME
        and value.isprintable()
        and value == value.strip()
        and not {"/", ","} & set(value)
    ):
        table.refuse(f"must be the name of a member: {_NAME_RULE}", key)
    else:
        return value
    return None


def _prose(table: Table, key: str, most: int, *, lines: bool = False) -> str:
    value = table.raw.get(key, "")
    if not isinstance(value, str):
        table.refuse(f"must be text in quotes, not {kind_alone(value)}", key)
        return ""
    plain = value.replace(_JOINER, "")
    if lines:
        plain = plain.replace("\n", "").replace("\r", "").replace("\t", "")
    if len(value) > most or not plain.isprintable():
        what = "text" if lines else "one line"
        table.refuse(f"must be {what} of at most {most} characters without control characters", key)
        return ""
    return value


def _model(table: Table) -> str | None:
    model = table.text("model", None)
    if model is not None and len(model) > keys.MAX_MODEL:
        table.refuse(f"is {len(model)} characters long; at most {keys.MAX_MODEL}", "model")
        return None
    return model


# ---- and back


def member_document(member: Member) -> dict[str, Any]:
    return {
        one.name: value
        for one in fields(Member)
        if (value := getattr(member, one.name)) != getattr(_USUAL, one.name)
    }


def chair_document(council: Council) -> str | dict[str, Any]:
    return council.chair.name if council.chair in council.members else member_document(council.chair)
