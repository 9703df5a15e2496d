"""The labelled runs: a name and a seed give one, always the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from benchmarks.corpus import faults_hosts, faults_order, faults_speed, healthy
from benchmarks.corpus.dispatchers import Dispatcher
from benchmarks.corpus.recorder import ALWAYS_TOLD, MAYBE_TOLD, Clock, Setup, foreign, ours
from benchmarks.corpus.simulation import Simulation
from benchmarks.corpus.workloads import Case, Chance, gain, seen_room_s, turnaround
from benchmarks.corpus.world import Story
from penstock.diagnosis.recording import Recording

Recipe = Callable[[Chance, bool], Case]

FAULTS: dict[str, Recipe] = {
    "head-of-line-blocking": faults_order.head_of_line_blocking,
    "serial-starts": faults_order.serial_starts,
    "stalled-loop": faults_order.stalled_loop,
    "contention": faults_speed.contention,
    "one-at-a-time-server": faults_speed.one_at_a_time_server,
    "idle-slots": faults_order.idle_slots,
    "starvation": faults_order.starvation,
    "priority-inversion": faults_order.priority_inversion,
    "leaked-slots": faults_hosts.leaked_slots,
    "retry-storm": faults_hosts.retry_storm,
    "host-down": faults_hosts.host_down,
    "cold-starts": faults_hosts.cold_starts,
    "unbalanced-hosts": faults_hosts.unbalanced_hosts,
    "stuck-gate": faults_hosts.stuck_gate,
    "wrong-slots": faults_speed.wrong_slots,
}
HEALTHY: dict[str, Recipe] = {
    f"healthy-{recipe.__name__.replace('_', '-')}": recipe
    for recipe in (
        healthy.noisy,
        healthy.mixed_kinds,
        healthy.own_hosts,
        healthy.priorities,
        healthy.lane_limits,
        healthy.reserve,
        healthy.weights,
        healthy.bursts,
        healthy.dependencies,
        healthy.retries,
        healthy.rate_limit,
        healthy.working_gate,
        healthy.full_queue,
        healthy.one_slot,
        healthy.outage,
        healthy.tiny,
        healthy.sparse,
        healthy.unequal_hosts,
        healthy.long_tail,
        healthy.slots_changed,
    )
}
RECIPES = {**FAULTS, **HEALTHY}
# What only our own record can tell: a foreign log knows neither gates nor rates, who was down, nor what was set
# on purpose.
OURS_ONLY = frozenset(
    {
        "stuck-gate",
        "host-down",
        "healthy-reserve",
        "healthy-rate-limit",
        "healthy-working-gate",
        "healthy-slots-changed",
    }
)
# What another system's log can show only by hosts that were seen to take more at once.
IDLENESS = frozenset(
    {
        "head-of-line-blocking",
        "serial-starts",
        "stalled-loop",
        "idle-slots",
        "leaked-slots",
        "unbalanced-hosts",
    }
)
TURNS = 200


@dataclass(frozen=True, slots=True)
class Labelled:
    """A run, and the truth about it."""

    name: str
    seed: int
    recording: Recording
    label: str | None  # the fault that is in it
    acceptable: frozenset[str]  # what is also true of it
    gain_s: float  # by how much it would have ended sooner without the fault
    lost_s: float  # what those who suffer lost, together
    costs_makespan: bool
    variant: str
    story: Story
    setup: Setup

    @property
    def is_ours(self) -> bool:
        return self.recording.plant is not None


def generate(name: str, seed: int) -> Labelled:
    as_ours = name in OURS_ONLY or seed % 2 == 0
    for turn in range(TURNS):
        rng = Chance(name, seed, turn)
        case = RECIPES[name](rng, as_ours)
        story = simulate(case.setup, case.dispatcher)
        twin = (
            story
            if case.twin is case.setup and case.label is None
            else simulate(case.twin, case.twin_dispatcher)
        )
        if case.is_there(story, twin) and (as_ours or _can_be_seen(case, story)):
            break
    else:
        raise RuntimeError(f"{name} {seed}: in {TURNS} turns the fault never did harm")
    epoch = 1_750_000_000 + rng.randrange(10_000_000)
    if as_ours:
        recording = ours(case.setup, story, name, epoch)
    else:
        recording = foreign(story, name, epoch, _told(rng, case), _clock(rng, story), rng)
    return Labelled(
        name,
        seed,
        recording,
        case.label,
        case.acceptable,
        gain(story, twin),
        turnaround(story) - turnaround(twin) if case.harm is None else case.harm(story, twin),
        case.harm is None,
        case.variant,
        story,
        case.setup,
    )


def simulate(setup: Setup, dispatcher: Dispatcher) -> Story:
    return Simulation(setup.works, setup.places, dispatcher, dict(setup.lanes), setup.gates).run()


def _can_be_seen(case: Case, story: Story) -> bool:
    return case.label not in IDLENESS or seen_room_s(story) >= 0.1 * story.makespan_s


def _told(rng: Random, case: Case) -> frozenset[str]:
    chosen = {column for column in MAYBE_TOLD if rng.random() < 0.6}
    works = case.setup.works
    if not any(w.model for w in works):
        chosen.discard("model")
    if not any(w.fails for w in works) and not any(p.broken for p in case.setup.places):
        chosen.discard("attempt")
    return frozenset(ALWAYS_TOLD | chosen | case.needs)


def _clock(rng: Random, story: Story) -> Clock:
    """As fine as what it measures needs."""
    lengths = sorted(t.end - t.start for t in story.tries)
    middle = lengths[len(lengths) // 2]
    choice = rng.random()
    if choice < 0.35:
        return Clock()
    if choice < 0.6:
        return Clock(late_s=min(0.05, middle * 0.01), round_s=0.001)
    if middle >= 25.0 and choice < 0.85:
        return Clock(round_s=1.0)
    return Clock(late_s=min(0.3, middle * 0.01))
