"""What every finder looks at, measured once: who ran where and when, how much room there was, who stood in line."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import median
from typing import NamedTuple

from penstock.diagnosis.attempts import Lived, lived, resolution_s
from penstock.diagnosis.finders.turns import Turn, is_backlog, turns_of
from penstock.diagnosis.recording import Recording
from penstock.diagnosis.speed import SpeedCurve, alone_of, curve_of
from penstock.diagnosis.steps import Span, Steps, combined, spans_of
from penstock.model import Host
from penstock.scheduling.messages import HostChange

_NEAR = 0.02  # of a usual duration: two moments as close as that are one
_FINE_S = 0.005
_STARTING = frozenset({"up"})  # states of a host in which it may be given anything


class Gap(NamedTuple):
    """Room on a host beside somebody in line for it."""

    host: str
    start: float
    end: float
    taken: Turn | None  # who then started there

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Scene:
    def __init__(self, recording: Recording, *, presumed: bool = False) -> None:
        self.recording = recording
        self._presumed = presumed
        self.begin, self.end = recording.begin, recording.end
        self.makespan_s = max(0.0, recording.makespan_s)
        self.by_host = lived(recording)
        self.lives = sorted(
            (a for lives in self.by_host.values() for a in lives if a.is_own),
            key=lambda a: (a.start, a.end, a.task, a.number),
        )
        self.resolution_s = resolution_s(recording)
        usual = [a.seconds for a in self.lives if a.is_well and a.seconds > 0]
        self.usual_s = median(usual) if usual else 0.0
        self.near_s = max(self.resolution_s, _NEAR * self.usual_s, _FINE_S)
        self._rooms: dict[tuple[str, int], Steps] = {}
        self._roomy: dict[tuple[str, str], Steps] = {}
        self.plant_hosts = {h.name: h for h in recording.plant.hosts} if recording.plant else {}

    def knows(self, column: str) -> bool:
        return column in self.recording.told

    # ---- hosts

    @cached_property
    def load(self) -> Mapping[str, Steps]:
        """How many ran at once, of this run and others."""
        return {host: Steps((a.start, a.end) for a in lives) for host, lives in self.by_host.items()}

    @cached_property
    def most(self) -> Mapping[str, int]:
        """How many ever ran at once, but for overlaps too short to mean anything."""
        return {host: self.lasting_most(steps) for host, steps in self.load.items()}

    def lasting_most(self, steps: Steps) -> int:
        """What lasts no longer than two moments that count as one is the clock's."""
        for count in sorted(set(steps.counts), reverse=True):
            if any(b - a > self.near_s for a, b in spans_of(steps, self.end, count)):
                return count
        return steps.most

    @cached_property
    def capacity(self) -> Mapping[str, Steps]:
        """How many may run at once: the slots as they were, or else the most that ever did."""
        changes: dict[str, list[HostChange]] = defaultdict(list)
        for change in self.recording.changes:
            if isinstance(change, HostChange):
                changes[change.host].append(change)
        return {
            host: self._capacity(self.plant_hosts.get(host), most, changes[host])
            for host, most in self.most.items()
        }

    def _capacity(self, host: Host | None, most: int, changes: Sequence[HostChange]) -> Steps:
        from_the_start = min([self.begin, *(a.start for a in self.lives[:1])]) - 1.0
        if host is None:
            return Steps.of([(from_the_start, most)])
        levels = [(from_the_start, host.slots)]
        levels += [
            (c.at, c.slots if c.state in _STARTING else 0) for c in sorted(changes, key=lambda c: c.at)
        ]
        return Steps.of(levels)

    def slots(self, host: str) -> int:
        """The most it was allowed, or else the most that ever ran."""
        return self.capacity[host].most if host in self.capacity else 0

    def host_type(self, host: str) -> str | None:
        known = self.plant_hosts.get(host)
        return None if known is None else known.type

    def waits_for_us(self, host: str) -> bool:
        """Whether its attempts are as long as what they ask of other hosts lets them be."""
        return host in self.recording.callers

    def has_known_slots(self, host: str) -> bool:
        return host in self.plant_hosts

    def may_idle(self, host: str) -> bool:
        """Whether it may be left with free slots beside waiting work for a reason that we cannot see."""
        known = self.plant_hosts.get(host)
        return known is not None and (
            known.fallback is not None or (known.rate is not None and not self.recording.is_ours)
        )

    @cached_property
    def reserved(self) -> Mapping[str, Mapping[str, int]]:
        """Host -> lane -> slots that nobody else may take."""
        kept: dict[str, dict[str, int]] = defaultdict(dict)
        for lane in self.recording.plant.lanes if self.recording.plant else ():
            for host, units in lane.reserve.items():
                kept[host][lane.name] = int(units.get("slots", 0))
        return kept

    @cached_property
    def busy(self) -> Mapping[str, Sequence[Span]]:
        """When anything ran."""
        return {host: spans_of(load, self.end) for host, load in self.load.items()}

    # ---- room

    @cached_property
    def lane_load(self) -> Mapping[str, Steps]:
        spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for lives in self.by_host.values():
            for a in lives:
                spans[a.lane].append((a.start, a.end))
        return {lane: Steps(found) for lane, found in spans.items()}

    @cached_property
    def lane_limits(self) -> Mapping[str, int]:
        lanes = self.recording.plant.lanes if self.recording.plant else ()
        return {lane.name: lane.max_running for lane in lanes if lane.max_running is not None}

    def room(self, host: str, lane: str) -> Steps:
        """Free slots over time for a task of a lane: beside what is kept for others. Not less than 0."""
        kept = sum(n for name, n in self.reserved.get(host, {}).items() if name != lane)
        if (host, kept) not in self._rooms:
            free = combined(
                lambda slots, used: max(0, slots - used - kept), (self.capacity[host], self.load[host])
            )
            # From an end to the next start a moment may pass: that is no room.
            lasting = [span for span in spans_of(free, self.end) if span[1] - span[0] > self.near_s]
            self._rooms[host, kept] = combined(lambda n, lasts: n if lasts else 0, (free, Steps(lasting)))
        return self._rooms[host, kept]

    def roomy(self, host: str, lane: str) -> Steps:
        """1 while a task of the lane could have been started on the host, by its slots and the lane's limit."""
        lane = self._like(host, lane)
        if (host, lane) not in self._roomy:
            room, limit = self.room(host, lane), self.lane_limits.get(lane)
            if limit is None:
                steps = Steps.of((at, int(n > 0)) for at, n in zip(room.times, room.counts, strict=True))
            else:
                steps = combined(
                    lambda free, running: int(free > 0 and running < limit),
                    (room, self.lane_load.get(lane, Steps(()))),
                )
            self._roomy[host, lane] = steps
        return self._roomy[host, lane]

    def _like(self, host: str, lane: str) -> str:
        """Lanes without a limit or a reserve of their own are all alike."""
        return lane if lane in self.lane_limits or lane in self.reserved.get(host, {}) else ""

    @cached_property
    def gaps(self) -> Sequence[Gap]:
        """When a host had room for somebody who was in line and whom it then took; by end."""
        lines: dict[tuple[str, str], list[Turn]] = defaultdict(list)
        for turn in self.turns:
            if turn.host is not None and turn.wait_s > self.near_s and self.could_have(turn) is not None:
                lines[turn.host, self._like(turn.host, turn.task.lane)].append(turn)
        gaps = []
        for (host, lane), turns in lines.items():
            line = Steps((t.since, t.start) for t in turns)
            both = combined(lambda roomy, waiting: int(roomy and waiting > 0), (self.roomy(host, lane), line))
            starts = [t.start for t in turns]
            for start, end in spans_of(both, self.end):
                if end - start > self.near_s:
                    i = bisect_left(starts, end)
                    taken = turns[i] if i < len(turns) and starts[i] <= end + self.near_s else None
                    gaps.append(Gap(host, start, end, taken))
        return sorted(gaps, key=lambda g: (g.end, g.host, g.start))

    # ---- durations

    @cached_property
    def curves(self) -> Mapping[str, SpeedCurve]:
        return {
            host: SpeedCurve(host) if self.waits_for_us(host) else curve_of(host, lives, self.resolution_s)
            for host, lives in sorted(self.by_host.items())
        }

    @cached_property
    def alone_s(self) -> Mapping[tuple[str, int], float]:
        return alone_of(self.by_host, self.curves, self.resolution_s)

    @cached_property
    def _usual_of_kind(self) -> Mapping[str, float]:
        durations: dict[str, list[float]] = defaultdict(list)
        for a in self.lives:
            if a.is_well:
                durations[a.sort[0]].append(a.seconds)
        return {kind: median(found) for kind, found in durations.items()}

    def usual_of(self, life: Lived) -> float:
        """How long an attempt of its kind takes, wherever."""
        return self.usual_of_kind(life.sort[0])

    def usual_of_kind(self, kind: str) -> float:
        return self._usual_of_kind.get(kind, self.usual_s)

    # ---- those in line

    @cached_property
    def moved_by_hand(self) -> frozenset[str]:
        """Tasks whose priority was changed meanwhile: the last one does not tell who was to go before them."""
        return frozenset(change.task for change in self.recording.priorities)

    @cached_property
    def turns(self) -> Sequence[Turn]:
        """By start. Where the log tells no queued times, nobody stood in line."""
        lives = {(a.task, a.number): a for a in self.lives}
        return turns_of(self.recording, lives, presumed=self._presumed)

    @cached_property
    def turns_of(self) -> Mapping[str, Sequence[Turn]]:
        """By the host that took them, or must take them; by start."""
        hosts: dict[str, list[Turn]] = {host: [] for host in self.by_host}
        for turn in self.turns:
            if turn.host in hosts:
                hosts[turn.host].append(turn)
        return hosts

    @cached_property
    def presumed(self) -> Scene:
        """Of a log without queued times in which nearly every start follows an end at once: a backlog.

        All of them stood in line from the beginning. That is a guess: good for what shows in the coincidence of
        starts and ends itself, and for nothing else.
        """
        if self.knows("queued") or self.recording.is_ours or not is_backlog(self.lives, self.near_s):
            return self
        return Scene(self.recording, presumed=True)

    @cached_property
    def in_line(self) -> Mapping[str, Steps]:
        """By host, how many stood in line that it then took, or must take."""
        return {host: Steps((t.since, t.start) for t in turns) for host, turns in self.turns_of.items()}

    @cached_property
    def hosts_of_sort(self) -> Mapping[tuple[str, str | None], frozenset[str]]:
        """Where work of a sort was run, and well."""
        hosts: dict[tuple[str, str | None], set[str]] = defaultdict(set)
        for a in self.lives:
            if a.is_well:
                hosts[a.sort].add(a.host)
        return {sort: frozenset(names) for sort, names in hosts.items()}

    def could_have(self, turn: Turn) -> Steps | None:
        """1 while the host that then took it had room for it; None where that cannot be said."""
        needs = turn.task.needs
        if (
            turn.host is None
            or turn.host not in self.load
            or self.may_idle(turn.host)
            or (needs and set(needs) != {"slots"})
        ):
            return None
        lane = turn.life.lane if turn.life is not None else turn.task.lane
        return self.roomy(turn.host, lane)

    def idle_s(self, turn: Turn) -> float:
        """For how long the host that then took it had room, while it stood in line."""
        room = self.could_have(turn)
        return room.area(turn.since, turn.start) if room is not None else 0.0
