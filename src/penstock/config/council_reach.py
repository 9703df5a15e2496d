"""Whether the members of councils can be asked at all: by hosts that are there, for models that they have.

A member's model may be an alias of [models]. It is replaced by what it stands for once the hosts are known, so
that prices, masks and records are of the model that answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.config.councils import LIBRARY, Council, Member
from penstock.config.document import Config
from penstock.config.keys import CALLS_LANE
from penstock.config.names import Names
from penstock.config.places import KeyPath
from penstock.config.problems import Near, Problems
from penstock.config.tasks import TaskChecker
from penstock.model import DEFAULT_LANE, EMBEDDING_CALL, Task


def with_real_models(config: Config) -> Config:
    """Called when all else is right."""
    names = Names(config)

    def real(kind: str, host: str | None, model: str | None) -> str | None:
        if model is None:
            return None
        meant = names.meant(model)
        return meant if config.plant.hosts_for(kind, host, meant) else names.asked(model) or model

    def meant(member: Member) -> Member:
        return replace(member, model=real(member.kind, member.host, member.model))

    def told(council: Council) -> Council:
        retrieval = council.retrieval
        if retrieval is not None:
            retrieval = replace(retrieval, embeddings=real(EMBEDDING_CALL, None, retrieval.embeddings))
        members = tuple(map(meant, council.members))
        chairs = [new for old, new in zip(council.members, members, strict=True) if old is council.chair]
        chair = chairs[0] if chairs else meant(council.chair)
        return replace(council, members=members, chair=chair, retrieval=retrieval)

    return replace(config, councils={name: told(council) for name, council in config.councils.items()})


def check_councils(config: Config, problems: Problems) -> None:
    """Called when all else is right."""
    lanes = [lane.name for lane in config.plant.lanes]
    checker = TaskChecker(config, own_calls=True, silent=True)
    kinds = {LIBRARY, *(council.kind for council in config.councils.values())}
    for council in config.councils.values():
        place: KeyPath = ("councils", council.name)
        lane = council.calls_lane if council.calls_lane in lanes else DEFAULT_LANE
        if council.calls_lane not in (*lanes, CALLS_LANE):
            problems.add((*place, "calls_lane"), "no such lane", Near(council.calls_lane, lanes, "lanes"))
        for where, member in _speakers(council):
            if member.kind in kinds:
                problems.add(
                    (*place, *where, "kind"), "is that of a council, which asks no other; name another"
                )
                continue
            task = Task(member.kind, host=member.host, model=member.model, lane=lane)
            for field, what in checker.problems(task):
                problems.add((*place, *where, *((field,) if field != "lane" else ())), what)
        retrieval = council.retrieval
        if retrieval is not None and retrieval.embeddings is not None:
            task = Task(EMBEDDING_CALL, model=retrieval.embeddings, lane=lane)
            for _, what in checker.problems(task):
                problems.add((*place, "retrieval", "embeddings"), what)


def _speakers(council: Council) -> Iterator[tuple[KeyPath, Member]]:
    for number, member in enumerate(council.members):
        yield ("members", number), member
    by_first = council.members[0]
    chair = council.chair
    told = (chair.kind, chair.host, chair.model) == (by_first.kind, by_first.host, by_first.model)
    if chair not in council.members and not told:  # what is wrong with the first is told once
        yield ("chair",), chair
