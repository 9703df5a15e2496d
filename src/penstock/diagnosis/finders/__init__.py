"""The finders of `diagnose`: each looks at a recording for one fault and names it, with evidence, cause and remedy.

They are asked in the order of `FINDERS`; a later one leaves alone what an earlier one has named better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from penstock.diagnosis.finders import (
    cold_starts,
    contention,
    head_of_line_blocking,
    host_down,
    idle_slots,
    leaked_slots,
    one_at_a_time_server,
    priority_inversion,
    retry_storm,
    serial_starts,
    stalled_loop,
    starvation,
    stuck_gate,
    unbalanced_hosts,
    wrong_slots,
)
from penstock.diagnosis.finders.scene import Scene
from penstock.diagnosis.findings import Finding, severity_of
from penstock.diagnosis.questions import work_of
from penstock.diagnosis.recording import Recording
from penstock.diagnosis.whatif.gains import Gains
from penstock.errors import UsageError


class Finder(NamedTuple):
    find: Callable[[Scene, Sequence[Finding]], Iterable[Finding]]
    meaning: str  # in a line


FINDERS: Mapping[str, Finder] = {
    stalled_loop.NAME: Finder(
        stalled_loop.find, "one task kept the loop that starts all the others from turning"
    ),
    head_of_line_blocking.NAME: Finder(
        head_of_line_blocking.find,
        "tasks waited beside room on their host, behind an older one that waited for another host",
    ),
    leaked_slots.NAME: Finder(
        leaked_slots.find, "how many run at once on a host drifted away from its slots and did not come back"
    ),
    serial_starts.NAME: Finder(
        serial_starts.find, "a family ran one at a time although there was room: each start is at an end"
    ),
    stuck_gate.NAME: Finder(
        stuck_gate.find, "a gate stayed closed for most of the time in which tasks waited for it"
    ),
    unbalanced_hosts.NAME: Finder(
        unbalanced_hosts.find, "one host was full with tasks in line while another that serves the same idled"
    ),
    idle_slots.NAME: Finder(
        idle_slots.find, "tasks that could have run waited beside free slots, in many gaps"
    ),
    one_at_a_time_server.NAME: Finder(
        one_at_a_time_server.find, "a host with several slots gets through no more than with one"
    ),
    contention.NAME: Finder(
        contention.find, "attempts take the longer the more of them run on a host at once"
    ),
    wrong_slots.NAME: Finder(
        wrong_slots.find, "a host has more slots than do any good, or fewer than it has been shown to take"
    ),
    starvation.NAME: Finder(
        starvation.find, "tasks were overtaken again and again by others that came after them"
    ),
    priority_inversion.NAME: Finder(
        priority_inversion.find, "more urgent tasks waited while less urgent ones, no older, were started"
    ),
    host_down.NAME: Finder(
        host_down.find, "tasks waited for hosts that were down, or attempts were lost to a host's faults"
    ),
    retry_storm.NAME: Finder(
        retry_storm.find, "a large part of the attempts are repeats that fail again, and quickly"
    ),
    cold_starts.NAME: Finder(
        cold_starts.find, "the first attempts on a host, or after a pause or another model, take far longer"
    ),
}


def unheard(name: str) -> None:
    """Nobody wants to know what is being looked for."""


def find(recording: Recording, told: Callable[[str], None] = unheard) -> list[Finding]:
    """What is wrong with a run, the greatest gain first; nothing for one that is well.

    `told` hears the name of each fault before it is looked for; whatever it raises ends the search.
    """
    scene = Scene(work_of(recording))
    found: list[Finding] = []
    if scene.makespan_s <= 0:
        return found
    for name, finder in FINDERS.items():
        told(name)
        if scene.by_host or name in (host_down.NAME, stuck_gate.NAME):  # where nothing ran, that may be why
            found += finder.find(scene, tuple(found))
    if any(finding.change for finding in found):
        told("what the remedies gain")
        found = _played(found, scene)
    return sorted(found, key=lambda f: (-f.gain_s, f.name, f.cause))


def _played(found: list[Finding], scene: Scene) -> list[Finding]:
    """Those whose remedy is a change of the plant with the gain that `whatif` answers for it."""
    try:
        gains = Gains(scene.recording)
    except UsageError:  # the record does not tell enough
        return found
    return [_with_gain(finding, gains, scene.makespan_s) for finding in found]


def _with_gain(finding: Finding, gains: Gains, makespan_s: float) -> Finding:
    if finding.change is None or finding.is_endless or (gain := gains.of(finding.change)) is None:
        return finding
    gain_s = min(max(0.0, gain.sooner_s), makespan_s)
    return replace(finding, gain_s=gain_s, severity=severity_of(gain_s, makespan_s), is_played=True)
