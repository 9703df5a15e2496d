"""The epochs of a store's dispatchers: who owns it, and the story of those who did.

What the database holds for the owner decides; the table only says who that is. A dispatcher that is killed leaves
an epoch without an end, which its successor closes at the last sign of life.
"""

from __future__ import annotations

from datetime import datetime

from penstock.errors import AlreadyOwned
from penstock.model import Plant
from penstock.store.base import Epoch, Owner
from penstock.store.queries import printable
from penstock.store.rows import epoch_of, plant_text
from penstock.store.session import Session
from penstock.store.standbys import PREFIX

# Commands that dispatch for a while, and when they leave by themselves.
_ENDS = {
    "council ask": "with its question",
    "council ingest": "with its documents",
    "council sources": "with its answer",
}


def last_epoch(session: Session) -> Epoch | None:
    row = session.row("last_epoch")
    return None if row is None else epoch_of(row)


def stopping_lease(epoch: int) -> str:
    """What a dispatcher that stops holds; the query `last_epoch` reads it."""
    return f"stopping/{epoch}"


def who_owns(name: str, session: Session) -> AlreadyOwned:
    """What to tell somebody who may not have the store now."""
    waiting = session.rows("leases", PREFIX, PREFIX + "\U0010ffff", session.time())
    return already_owned(name, last_epoch(session), len(waiting))


def already_owned(name: str, holder: Epoch | None, standbys: int = 0) -> AlreadyOwned:
    if holder is None or holder.ended_at is not None:
        return AlreadyOwned(f"{name}: another dispatcher is just starting on it; wait for it, or stop it")
    owner = holder.owner
    since = datetime.fromtimestamp(holder.started_at).isoformat(" ", "seconds")
    ends = next((when for command, when in _ENDS.items() if owner.command.endswith(command)), None)
    remedy = "stop that one first" if ends is None else f"it ends {ends}: wait for that, or stop it"
    if standbys:  # who stops only that one finds the next at work
        them = "the one that stands by" if standbys == 1 else f"the {standbys} that stand by"
        remedy += f", and {them}, which would take over: `penstock status` names "
        remedy += "it" if standbys == 1 else "them"
    return AlreadyOwned(
        f"{name}: already dispatched by process {owner.pid} on {owner.machine} ({owner.command})"
        f" since {since}; {remedy}"
    )


def begin_epoch(
    session: Session, owner: Owner, now: float, plant: Plant | None, config: str | None, after: int = 0
) -> tuple[Epoch, Epoch | None]:
    """The new epoch and the one before, which ends now at the latest.

    Its number is above `after`, which was an epoch of whoever begins it: a database may have forgotten that one. It
    may have forgotten others' as well, and nobody here knows theirs; so numbers are no smaller than the seconds of
    its clock, and one that begins later has a larger one.
    """
    before = last_epoch(session)
    if before is not None and before.ended_at is None:
        # Every record of a dispatcher moves `seen_at`, so this is its last sign of life.
        session.run("end_epoch", before.seen_at, before.number)
        before = last_epoch(session)
    if before is not None and before.stopping_since is not None:  # it did not live to let go of it
        session.run("end_lease", stopping_lease(before.number), str(before.number))
    who = (owner.pid, printable(owner.machine), printable(owner.command), owner.answers_only)
    what = (plant_text(plant), printable(owner.url), owner.only_run, config)
    row = (*who, now, now, *what, max(after, int(session.time())))
    number = session.add("add_epoch", *row)
    return Epoch(number, owner, now, now, plant=plant), before
