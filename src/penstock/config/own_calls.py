"""Hosts whose attempts call models through Penstock itself: which they are, and the lane of their calls."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.config.keys import CALLS_LANE, RUN_TYPES
from penstock.model import Host, Lane, Plant

RUNS = "v1-"  # what the runs of calls begin with
_LONGEST_RUN = 128


def run_of_calls(run: str) -> str:
    """The run that the calls of a run's attempts are in."""
    return (RUNS + run.removeprefix(RUNS))[:_LONGEST_RUN]


def calls_through_us(host: Host) -> bool:
    """Whether the calls of its attempts come back to the dispatcher that runs them."""
    return host.type in RUN_TYPES and host.options.get("url") is None


def calls_lane(host: Host) -> str:
    """The lane of those calls."""
    return str(host.options.get("calls_lane") or CALLS_LANE)


def own_lanes(plant: Plant) -> tuple[str, ...]:
    """Every lane of such calls."""
    return tuple(dict.fromkeys(calls_lane(host) for host in plant.hosts if calls_through_us(host)))


def with_own_lane(hosts: Iterable[Host], lanes: dict[str, Lane]) -> None:
    """The lane of calls that nobody named is there by itself."""
    if any(calls_through_us(host) and calls_lane(host) == CALLS_LANE for host in hosts):
        lanes.setdefault(CALLS_LANE, Lane(CALLS_LANE))
