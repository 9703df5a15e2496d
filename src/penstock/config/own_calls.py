"""Hosts whose attempts wait for tasks of their own dispatcher: which they are, and the lane of those tasks.

Runs of `researcher` and `file_prompt` call models through a door of their own dispatcher; a question of a council
asks for tasks at its desk, and the library there for embeddings, where those are a model's.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.config.councils import COUNCIL_TYPE, LIBRARY_TYPE
from penstock.config.keys import CALLS_LANE, RUN_TYPES
from penstock.model import Host, Lane, Plant

RUNS = "v1-"  # what the runs of calls begin with
# The lane of the library's own calls: it waits in that of a council's tasks.
EMBEDDINGS_LANE = "council-embeddings"
_LONGEST_RUN = 128


def run_of_calls(run: str) -> str:
    """The run that the calls of a run's attempts are in."""
    return (RUNS + run.removeprefix(RUNS))[:_LONGEST_RUN]


def calls_through_us(host: Host) -> bool:
    """Whether what its attempts wait for comes back to the dispatcher that runs them."""
    if host.type == LIBRARY_TYPE:
        return bool(host.options.get("embeddings"))
    return host.type == COUNCIL_TYPE or needs_door(host)


def needs_door(host: Host) -> bool:
    """Whether it comes back as calls of /v1."""
    return host.type in RUN_TYPES and host.options.get("url") is None


def needs_desk(host: Host) -> bool:
    """Whether it is asked for at the dispatcher's own desk."""
    return host.type in (COUNCIL_TYPE, LIBRARY_TYPE)


def calls_lane(host: Host) -> str:
    """The lane of that."""
    usual = EMBEDDINGS_LANE if host.type == LIBRARY_TYPE else CALLS_LANE
    return str(host.options.get("calls_lane") or usual)


def own_lanes(plant: Plant) -> tuple[str, ...]:
    """Every lane of such tasks."""
    return tuple(dict.fromkeys(calls_lane(host) for host in plant.hosts if calls_through_us(host)))


def with_own_lane(hosts: Iterable[Host], lanes: dict[str, Lane]) -> None:
    """The lane of calls that nobody named is there by itself."""
    for name in {calls_lane(host) for host in hosts if calls_through_us(host)}:
        if name in (CALLS_LANE, EMBEDDINGS_LANE):
            lanes.setdefault(name, Lane(name))
