"""From the payload of a question's task to the question: everything wrong with it in one line, or its defaults.

"…"                                                     only the query
{"query": "…", "mode": "council", "members": ["GOKU"],  mode, members and use_rag: the council's own where left out
 "use_rag": true, "conversation": "c-1",                the run of its task: without it, nothing was said before
 "turns": [{"query": "…", "answer": "…"}],              what was said before, where no conversation is kept of it
 "instructions": "…"}                                   what the members are to keep in mind
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.config.councils import Council, Mode
from penstock.config.keys import ID, ID_RULE
from penstock.config.own_calls import RUNS
from penstock.config.wording import kind_of, meant, quoted
from penstock.council.plan.steps import Question, Turn
from penstock.errors import TaskError

MAX_QUERY_CHARS = 32_000
MAX_TURNS = 20  # of a conversation, the latest; prompts may hold fewer
MAX_TURN_CHARS = 32_000

FIELDS = ("query", "mode", "members", "use_rag", "conversation", "turns", "instructions")
_TURN = ("query", "answer")


def read_question(
    council: Council, payload: Any, id: str, asked_at: float, turns: Sequence[Turn] = ()
) -> Question:
    """`turns` are those of its conversation, oldest first; the payload's own go before them.

    TaskError: one line with all that is wrong.
    """
    fields, problems = _fields(payload)
    query = _query(fields, problems)
    mode = _mode(council, fields.get("mode"), problems)
    members = _members(council, fields.get("members"), problems)
    use_rag = _use_rag(council, fields.get("use_rag"), problems)
    conversation = _conversation(fields.get("conversation"), problems)
    brought = _turns(fields.get("turns"), problems)
    instructions = _instructions(fields.get("instructions"), problems)
    if problems:
        raise TaskError(f"council {quoted(council.name)}: {'; '.join(problems)}")
    kept = tuple(
        Turn(turn.query[:MAX_TURN_CHARS], turn.answer[:MAX_TURN_CHARS])
        for turn in (brought or turns)[-MAX_TURNS:]
    )
    return Question(id, query, mode, members, use_rag, asked_at, kept, conversation, instructions)


def _fields(payload: Any) -> tuple[Mapping[str, Any], list[str]]:
    if isinstance(payload, str):
        return {"query": payload}, []
    if not isinstance(payload, Mapping):
        return {"query": None}, [f'a question is a text or {{"query": "…"}}, not {kind_of(payload)}']
    unknown = [name for name in payload if name not in FIELDS]
    problems = [
        f"no field {quoted(str(name)[:64])}{meant(name, FIELDS, 'the fields are')}" for name in unknown[:3]
    ]
    if len(unknown) > len(problems):
        problems.append(f"and {len(unknown) - len(problems)} more unknown fields")
    return payload, problems


def _query(fields: Mapping[str, Any], problems: list[str]) -> str:
    if "query" not in fields:
        problems.append('`query` is missing: {"query": "what to ask"}')
        return ""
    query = fields["query"]
    if not isinstance(query, str):
        if query is not None or not problems:
            problems.append(f"`query` must be a text, not {kind_of(query)}")
        return ""
    if not query.strip():
        problems.append("`query` is empty: write what to ask")
    elif len(query) > MAX_QUERY_CHARS:
        problems.append(
            f"`query` has {len(query)} characters, {MAX_QUERY_CHARS} are allowed: "
            "shorten it, or bring long material in with `council ingest`"
        )
    return query.strip()


def _mode(council: Council, given: Any, problems: list[str]) -> Mode:
    if given is None:
        return council.mode
    try:
        return Mode(given)
    except ValueError:
        names = [mode.value for mode in Mode]
        what = quoted(given[:64]) if isinstance(given, str) else kind_of(given)
        problems.append(f"no mode {what}{meant(given, names, 'the modes are')}")
        return council.mode


def _members(council: Council, given: Any, problems: list[str]) -> tuple[str, ...]:
    names = [one.name for one in council.members]
    if given is None:
        return tuple(names)
    if isinstance(given, str) or not isinstance(given, list | tuple):
        problems.append(f'`members` must be a list of names such as ["{names[0]}"], not {kind_of(given)}')
        return ()
    if not given:
        problems.append(
            f"`members` is empty: name whom to ask, or leave it out; there are {', '.join(names)}"
        )
        return ()
    if len(given) > 4 * len(names) + 16:
        problems.append(f"`members` has {len(given)} names, the council has {len(names)} members")
        return ()
    folded = {name.casefold(): name for name in names}
    chosen: set[str] = set()
    for name in given:
        found = folded.get(name.casefold()) if isinstance(name, str) else None
        if found is None:
            what = quoted(name[:64]) if isinstance(name, str) else kind_of(name)
            problems.append(f"no member {what}{meant(name, names, 'there are')}")
        else:
            chosen.add(found)
    return tuple(name for name in names if name in chosen)


def _use_rag(council: Council, given: Any, problems: list[str]) -> bool:
    if given is None:
        return council.retrieval is not None
    if not isinstance(given, bool):
        problems.append(f"`use_rag` must be true or false, not {kind_of(given)}")
        return False
    if given and council.retrieval is None:
        place = f"councils.{council.name}.retrieval"
        problems.append(f"`use_rag` is true, but there is nothing to read: set {place}, or leave it out")
    return bool(given)


def _conversation(given: Any, problems: list[str]) -> str:
    if given is None:
        return ""
    if not isinstance(given, str):
        problems.append(f"`conversation` must be a text, not {kind_of(given)}")
    elif given and (problem := conversation_problem(given)) is not None:
        problems.append(problem)
    else:
        return given
    return ""


def conversation_problem(name: str) -> str | None:
    """Why this cannot be the name of a conversation."""
    if not ID.fullmatch(name):
        return f"`conversation` cannot be {quoted(name[:64])}: {ID_RULE}"
    if name.startswith(RUNS):
        return (
            f"`conversation` cannot be {quoted(name)}: what begins with {quoted(RUNS)} are chats of everybody"
        )
    return None


def _turns(given: Any, problems: list[str]) -> list[Turn]:
    if given is None:
        return []
    if not isinstance(given, list | tuple):
        problems.append(f'`turns` must be a list of {{"query": "…", "answer": "…"}}, not {kind_of(given)}')
        return []
    found: list[Turn] = []
    for place, turn in enumerate(given):
        said = [turn.get(name, "") for name in _TURN] if isinstance(turn, Mapping) else []
        if len(said) < 2 or set(turn) - set(_TURN) or not all(isinstance(one, str) for one in said):
            problems.append(f'`turns.{place}` must be {{"query": "…", "answer": "…"}}, with texts')
            return []
        found.append(Turn(*said))
    return found


def _instructions(given: Any, problems: list[str]) -> str:
    if given is None:
        return ""
    if not isinstance(given, str):
        problems.append(f"`instructions` must be a text, not {kind_of(given)}")
        return ""
    if len(given) > MAX_QUERY_CHARS:
        problems.append(
            f"`instructions` has {len(given)} characters, {MAX_QUERY_CHARS} are allowed: shorten it"
        )
    return given.strip()
