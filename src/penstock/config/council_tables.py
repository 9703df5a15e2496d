"""[councils.NAME] → Council; and back to the table it could be read from."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.config import keys
from penstock.config.council_members import (
    chair_document,
    found_member,
    member_document,
    read_chair,
    read_members,
)
from penstock.config.councils import (
    COUNCIL_PREFIX,
    LIBRARY,
    Council,
    Member,
    Mode,
    ModeLimits,
    Quick,
    Retrieval,
)
from penstock.config.problems import Near, quoted
from penstock.config.store_place import LIBRARY_FOLDER, beside_store
from penstock.config.tables import Table

_MODES = tuple(mode.value for mode in Mode)
_USUAL = Council("", (), Member(""))
_COLLECTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*")  # as Chroma has it
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_FEWEST_LETTERS, _MOST_LETTERS = 3, 63
_LIMITS_LIKE = "{ quick = { cost_usd = 0.05, time_s = 60 } }"
_QUICK_MEMBERS = 2


def read_councils(top: Table, folder: Path, store: str) -> dict[str, Council]:
    councils = {
        name: _read_council(name, table, folder, store)
        for name, table in top.named_tables("councils", keys.MAX_COUNCILS)
        if _is_named_well(name, table)
    }
    _check_collections(councils, top)
    return councils


def _is_named_well(name: str, table: Table) -> bool:
    if COUNCIL_PREFIX + name == LIBRARY:
        table.refuse(f"host {quoted(LIBRARY)} is what all councils look things up with; choose another name")
    elif len(name) > keys.MAX_COUNCIL_NAME:
        table.refuse(f"the name of a council has at most {keys.MAX_COUNCIL_NAME} characters, not {len(name)}")
    else:
        return True
    return False


def _read_council(name: str, table: Table, folder: Path, store: str) -> Council:
    table.only(keys.COUNCIL)
    members = read_members(table)
    return Council(
        name=name,
        members=members,
        chair=read_chair(table, members),
        min_answers=_min_answers(table, members),
        patience_s=table.number("patience_s", None, keys.DELAY),
        mode=Mode(table.choice("mode", _USUAL.mode.value, _MODES)),
        retrieval=_retrieval(table, folder, store),
        quick=_quick(table, members),
        rubric=_rubric(table),
        limits=_limits(table),
        calls_lane=table.name("calls_lane", _USUAL.calls_lane),
        slots=table.whole("slots", _USUAL.slots, keys.QUESTIONS),
    )


def _min_answers(table: Table, members: tuple[Member, ...]) -> int:
    fewest = table.whole("min_answers", _USUAL.min_answers, keys.COUNT)
    if members and fewest > len(members):
        table.refuse(f"is {fewest}, but there are {len(members)} members; ask for fewer", "min_answers")
    return fewest


# ---- what they may read


def _retrieval(table: Table, folder: Path, store: str) -> Retrieval | None:
    inner = table.table("retrieval", '{ collection = "knowledge_base" }')
    if inner is None:
        return None
    inner.only(keys.RETRIEVAL)
    usual = Retrieval("")
    url = _url(inner)
    path = inner.text("path", None)
    if "url" in inner and "path" in inner:
        inner.refuse("is for Chroma inside Penstock, `url` for a Chroma server; give one of them", "path")
    for key in ("key_env", "tenant", "database"):
        if key in inner and "url" not in inner:
            inner.refuse("is of a Chroma server; give its `url`, or remove it", key)
    words = inner.whole("chunk_words", usual.chunk_words, keys.CHUNK_WORDS)
    overlap = inner.whole("overlap_words", min(usual.overlap_words, words // 5), keys.OVERLAP_WORDS)
    if overlap >= words:
        inner.refuse(f"must be less than chunk_words ({words}), not {overlap}", "overlap_words")
    embeddings = inner.text("embeddings", None)
    if embeddings is not None and len(embeddings) > keys.MAX_MODEL:
        inner.refuse(f"must be the name of a model, at most {keys.MAX_MODEL} characters", "embeddings")
    own = beside_store(store, LIBRARY_FOLDER) if path is None else folder / os.path.expanduser(path)
    return Retrieval(
        collection=_collection(inner),
        top=inner.whole("top", usual.top, keys.PASSAGES),
        path="" if url is not None else os.path.normpath(own),
        url=url,
        key_env=_key_env(inner),
        tenant=inner.text("tenant", None),
        database=inner.text("database", None),
        embeddings=embeddings,
        chunk_words=words,
        overlap_words=overlap,
    )


def _collection(table: Table) -> str:
    if "collection" not in table:
        table.refuse('has no collection; name one: collection = "knowledge_base"')
        return ""
    name = table.text("collection", "")
    fits = _COLLECTION.fullmatch(name) and name[-1].isalnum() and not re.fullmatch(r"\d+(\.\d+){3}", name)
    if name and not (fits and _FEWEST_LETTERS <= len(name) <= _MOST_LETTERS):
        rule = (
            f"{_FEWEST_LETTERS} to {_MOST_LETTERS} letters, digits, '_', '-' and single '.', "
            "first and last a letter or digit, and no IP address"
        )
        table.refuse(f"must be a name that Chroma takes: {rule}", "collection")
    return name


def _url(table: Table) -> str | None:
    from urllib.parse import urlsplit

    url = table.text("url", None)
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fits = False
    else:
        if "@" in parts.netloc:
            table.refuse("holds a name or a password, which do not belong in this file", "url")
            return None
        if fits and parts.path not in ("", "/"):
            table.refuse("holds a path, where Chroma's own client asks none; end it with the port", "url")
            return None
        fits = fits and not parts.query and not parts.fragment
    if not fits:
        table.refuse('must be the address of a Chroma server, such as "http://127.0.0.1:8000"', "url")
        return None
    return url.rstrip("/")


def _key_env(table: Table) -> str | None:
    name = table.text("key_env", None)
    if name is None or _VARIABLE.fullmatch(name):
        return name
    # Not with what was found there: it may be the key itself.
    table.refuse("must be the name of an environment variable, such as CHROMA_KEY, not the key", "key_env")
    return None


def _check_collections(councils: Mapping[str, Council], top: Table) -> None:
    """Vectors of two models cannot be compared, so a collection has those of one."""
    first: dict[tuple[str | None, ...], Council] = {}
    for council in councils.values():
        has = council.retrieval
        if has is None or not has.collection:
            continue
        place = has.url or has.path, has.tenant, has.database, has.collection
        other = first.setdefault(place, council)
        if other.retrieval is not None and other.retrieval.embeddings != has.embeddings:
            message = (
                f"council {quoted(other.name)} has other embeddings for the same collection; "
                "name the same, or another collection"
            )
            top.refuse(message, "councils", council.name, "retrieval", "embeddings")


# ---- when one answer is enough, and what it may cost


def _quick(table: Table, members: tuple[Member, ...]) -> Quick:
    inner = table.table("quick", "{ unsure_below = 60 }")
    usual = _USUAL.quick
    if inner is None:
        return usual
    inner.only(keys.QUICK)
    named = inner.texts("members", (), most=_QUICK_MEMBERS)
    chosen: dict[str, None] = {}
    for number, name in enumerate(named):
        member = found_member(name, members)
        if member is not None:
            chosen[member.name] = None
        elif members:
            near = Near(name, [one.name for one in members], "members")
            inner.refuse("no such member", "members", number, near=near)
    return Quick(
        members=tuple(chosen),
        unsure_below=inner.number("unsure_below", usual.unsure_below, keys.PERCENT),
        agree_at_least=inner.number("agree_at_least", usual.agree_at_least, keys.SHARE),
        risk_words=inner.texts("risk_words", (), most=keys.MAX_RISK_WORDS),
    )


def _rubric(table: Table) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for number, word in enumerate(table.texts("rubric", _USUAL.rubric, most=keys.MAX_RUBRIC)):
        if len(word) > keys.MAX_RUBRIC_WORD or word != word.strip():
            table.refuse(
                f"must be a word or two, at most {keys.MAX_RUBRIC_WORD} characters", "rubric", number
            )
        elif found.setdefault(word.casefold(), word) != word:
            table.refuse("is there already; remove one", "rubric", number)
    if not found and table.raw.get("rubric") in ([], ()):
        table.refuse("is empty; name what answers are scored by, or remove it", "rubric")
    return tuple(found.values()) or _USUAL.rubric


def _limits(table: Table) -> dict[Mode, ModeLimits]:
    inner = table.table("limits", _LIMITS_LIKE)
    found: dict[Mode, ModeLimits] = {}
    for mode in {} if inner is None else inner.raw:
        assert inner is not None
        if mode not in _MODES:
            near = Near(mode, _MODES, "modes")
            inner.refuse(f"no such mode; write it like {_LIMITS_LIKE}", mode, near=near)
        elif (limits := inner.table(mode, "{ cost_usd = 0.05, time_s = 60 }")) is not None:
            limits.only(keys.MODE_LIMITS)
            both = ModeLimits(
                cost_usd=limits.number("cost_usd", None, keys.SPENT),
                time_s=limits.number("time_s", None, keys.SECONDS),
            )
            if both != ModeLimits():
                found[Mode(mode)] = both
    return found


# ---- and back


def council_document(council: Council, store: str) -> dict[str, Any]:
    """The table that this council would be read from: what is not as usual."""
    table: dict[str, Any] = {
        "chair": chair_document(council),
        "members": [member_document(one) for one in council.members],
    }
    for key in ("min_answers", "patience_s", "rubric", "calls_lane", "slots"):
        if (value := getattr(council, key)) != getattr(_USUAL, key):
            table[key] = list(value) if isinstance(value, tuple) else value
    if council.mode is not _USUAL.mode:
        table["mode"] = council.mode.value
    if council.retrieval is not None:
        table["retrieval"] = _retrieval_document(council.retrieval, store)
    if council.quick != _USUAL.quick:
        table["quick"] = _unusual(council.quick, _USUAL.quick, keys.QUICK)
    if council.limits:
        table["limits"] = {
            mode.value: _unusual(limits, ModeLimits(), keys.MODE_LIMITS)
            for mode, limits in council.limits.items()
        }
    return table


def _retrieval_document(retrieval: Retrieval, store: str) -> dict[str, Any]:
    usual = Retrieval("", path=os.path.normpath(beside_store(store, LIBRARY_FOLDER)))
    if retrieval.url is not None:
        usual = replace(usual, path="")
    table = _unusual(retrieval, usual, keys.RETRIEVAL)
    return table | {"chunk_words": retrieval.chunk_words, "overlap_words": retrieval.overlap_words}


def _unusual(value: Any, usual: Any, known: tuple[str, ...]) -> dict[str, Any]:
    given = {key: getattr(value, key) for key in known if getattr(value, key) != getattr(usual, key)}
    return {key: list(one) if isinstance(one, tuple) else one for key, one in given.items()}
