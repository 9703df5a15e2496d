"""host-down (E2): found where tasks waited for hosts that were down, or lost attempts to one; with who and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.config.council_steps import step_key
from penstock.diagnosis.finders import find
from penstock.diagnosis.findings import Finding, Severity
from penstock.diagnosis.recording import Recording
from penstock.model import Attempt, BreakerRule, Fault, Host, Plant, Verdict, Wait
from penstock.scheduling.messages import HostChange
from tests.unit.recording_rig import Row, recording

PLANT = Plant((Host("a", "python", 2, serves=("k",)), Host("b", "python", 1, serves=("chat",))))
REFUSED = "b: no connection to http://b.test/v1 (Connection refused)"


def changes(*spans: tuple[float, float], host: str = "b", detail: str = REFUSED) -> list[HostChange]:
    return [
        change
        for start, end in spans
        for change in (
            HostChange(host, start, "down", 1, detail),
            HostChange(host, end, "up", 1, ""),
        )
    ]


def waited(*spans: tuple[float, float], detail: str = REFUSED) -> tuple[Wait, ...]:
    return tuple(Wait("host-down", detail, start, end) for start, end in spans)


def chats(until: float, count: int = 2, seconds: float = 5.0) -> list[Row]:
    """One after the other, when their host is back."""
    return [
        Row(f"c{i}", until + seconds * i, until + seconds * (i + 1), host="b", kind="chat")
        for i in range(count)
    ]


def others(count: int = 6) -> list[Row]:
    return [Row(f"o{i}", 5.0 * (i // 2), 5.0 * (i // 2) + 5, host="a") for i in range(count)]


def away(until: float) -> Recording:
    """Two chats wait for their only host from the beginning on; what else there is takes 15 s."""
    waits = {
        f"c{i}": (*waited((0.0, until)), *([Wait("slots:b", "", until, until + 5.0)] if i else []))
        for i in range(2)
    }
    return recording([*others(), *chats(until)], plant=PLANT, waits=waits, changes=changes((0.0, until)))


def of(run: Recording) -> dict[str, Finding]:
    return {one.name: one for one in find(run)}


def test_a_run_that_waits_for_a_dead_host_is_told_who_for_how_long_and_why() -> None:
    found = of(away(30.0))
    assert set(found) == {"host-down"}
    one = found["host-down"]
    assert one.severity is Severity.HIGH
    assert one.evidence.hosts == ("b",)
    assert one.evidence.tasks == ("c0", "c1")
    assert one.evidence.lost_s == 60.0
    assert one.gain_s == 25.0, "the run ended at 40 s, and its other work at 15 s"
    assert one.cause.startswith(
        "2 tasks waited for host b, which was down, for 30 s of the run's 40 s: no conn"
    )
    assert "b: " not in one.cause, "who it is of is said before"
    assert "serves chat" in one.remedy
    assert "fallback" in one.remedy


def test_a_blip_is_no_finding() -> None:
    assert "host-down" in of(away(5.0))
    assert not find(away(1.0))


def test_a_host_that_is_away_while_nobody_waits_for_it_is_no_finding() -> None:
    run = away(30.0)
    assert not find(replace(run, waits={name: (Wait("scheduled", "", 0.0, 30.0),) for name in run.waits}))


def test_tasks_that_were_never_started_would_have_taken_as_long_as_others() -> None:
    """Given up while they waited: the run would have ended with the rest of its work."""
    gone = [replace(row, start=None, end=60.0) for row in chats(0.0)]
    waits = {row.task: waited((0.0, 60.0)) for row in gone}
    run = recording([*others(), *gone], plant=PLANT, waits=waits, changes=changes((0.0, 99.0)), end=60.0)
    assert of(run)["host-down"].gain_s == 45.0


def test_a_run_in_which_nothing_could_run_has_a_finding() -> None:
    gone = [Row("c0", None, None, kind="chat")]
    run = recording(
        gone, plant=PLANT, waits={"c0": waited((0.0, 50.0))}, changes=changes((0.0, 99.0)), end=50.0
    )
    assert set(of(run)) == {"host-down"}


def test_a_host_that_is_dead_while_the_run_goes_on_costs_it_its_end() -> None:
    """E9: never of low severity, however late in the run it died; also between two tries."""
    queued = [Row("c0", None, None, kind="chat")]
    rows = [*others(), *queued]
    for rest in ((), (Wait("scheduled", "between tries", 601.0, 602.0),)):
        waits = {"c0": (Wait("slots:b", "", 0.0, 600.0), *waited((600.0, 601.0)), *rest)}
        died = [HostChange("b", 600.0, "down", 1, REFUSED), HostChange("b", 601.0, "half-open", 1, "")]
        run = recording(rows, plant=PLANT, waits=waits, changes=died, end=602.0)
        one = of(run)["host-down"]
        assert (one.severity, one.is_endless, one.gain_s) == (Severity.HIGH, True, 1.0)
        back = [*died, HostChange("b", 601.5, "up", 1, "")]
        assert "host-down" not in of(replace(run, changes=back)), "a blip"
        still = [*died, HostChange("b", 601.5, "up", 1, "", Fault("reset"))]
        assert of(replace(run, changes=still))["host-down"].is_endless


def test_only_hosts_that_were_down_are_named() -> None:
    both = Plant(
        (*PLANT.hosts, Host("c", "python", 1, serves=("chat",)), Host("d", "python", 1, serves=("x",)))
    )
    run = replace(away(30.0), plant=both)
    down = [*changes((0.0, 30.0)), *changes((0.0, 30.0), host="d", detail="not of interest")]
    assert of(replace(run, changes=down))["host-down"].evidence.hosts == ("b",)
    two = [*down, *changes((20.0, 30.0), host="c", detail="c: broken pipe")]
    one = of(replace(run, changes=two))["host-down"]
    assert one.evidence.hosts == ("b", "c")
    assert "hosts b and c, which were down" in one.cause
    assert one.cause.endswith("c: broken pipe"), "the last that is known"


def test_a_task_pinned_to_a_host_that_is_not_there_names_it() -> None:
    rows = [*others(), Row("p", None, None, host="gone", kind="nobody", pin="gone")]
    run = recording(rows, plant=PLANT, waits={"p": waited((0.0, 15.0), detail="")}, end=15.0)
    one = of(run)["host-down"]
    assert one.evidence.hosts == ("gone",)
    assert one.cause.endswith("of the run's 15 s")


def test_a_step_of_a_question_comes_sooner_by_what_the_question_waited() -> None:
    """A member's server dies, and the chair is asked when the council's patience ends."""
    rows = [
        Row("m1", 0.0, 4.0, host="a"),
        Row("m2", None, 34.0, host="b", kind="chat"),
        Row("chair", 34.0, 37.0, host="a", queued=34.0, after=("m1", "m2")),
    ]
    run = recording(rows, plant=PLANT, waits={"m2": waited((0.0, 34.0))}, changes=changes((0.0, 99.0)))
    keyed = [
        replace(r, task=replace(r.task, key=step_key("q", "synthesis/CHAIR"))) if r.task.id == "chair" else r
        for r in run.tasks
    ]
    assert of(replace(run, tasks=keyed))["host-down"].gain_s == 30.0
    assert of(run)["host-down"].gain_s == 0.0, "what comes from outside comes when it comes"


# ---- attempts that were lost


def lost(count: int, seconds: float = 30.0, *, verdict: Verdict = Verdict.HOST) -> Recording:
    """Each is given up after a while on one host and done at once on the other."""
    rows: list[Row] = []
    for i in range(count):
        at = (seconds + 5.0) * i
        bad = Row(f"t{i}", at, at + seconds, host="b", verdict=verdict, error="timed out", queued=at)
        rows += [bad, Row(f"t{i}", at + seconds, at + seconds + 5, host="a", number=2, queued=at)]
    return recording(rows)


def test_attempts_lost_to_one_host_are_told_without_any_wait() -> None:
    one = of(lost(6))["host-down"]
    assert one.evidence.hosts == ("b",)
    assert one.cause == "6 attempts of 6 tasks were lost on host b, 3 min of work: timed out"
    assert "breaker = { failures = 1 }" in one.remedy
    assert "timeout_s" in one.remedy
    assert one.evidence.lost_s == 180.0


def test_few_or_quick_faults_and_those_of_tasks_are_no_finding() -> None:
    assert "host-down" not in of(lost(2))
    assert "host-down" not in of(lost(6, seconds=2.4))
    assert "host-down" not in of(lost(6, verdict=Verdict.TEMPORARY))


def trials(verdict: Verdict) -> list[Row]:
    """A breaker lets one try again and again, which fails quickly."""
    return [
        Row("c0", 3.0 * i, 3.0 * i + 0.1, host="b", kind="chat", number=i, verdict=verdict, retry_at=3.0 * i)
        for i in range(1, 11)
    ]


def test_the_trials_of_a_breaker_are_no_storm_beside_it() -> None:
    spans = [(3.0 * i + 0.1, 3.0 * i + 3) for i in range(10)]
    rows = [*others(), *trials(Verdict.HOST), Row("c0", 33.0, 38.0, host="b", kind="chat", number=11)]
    run = recording(rows, plant=PLANT, waits={"c0": waited(*spans)}, changes=changes(*spans))
    assert set(of(run)) == {"host-down"}
    tried = [*others(), *trials(Verdict.TEMPORARY), Row("c0", 33.0, 38.0, host="b", kind="chat", number=11)]
    assert "retry-storm" in of(recording(tried, plant=PLANT)), "of a host that counts as up"


def test_a_pause_of_the_breaker_that_was_too_long_is_told_with_a_shorter_one() -> None:
    slow = replace(PLANT.hosts[1], breaker=BreakerRule(1, 20.0, 60.0))
    rows = [*others(), replace(trials(Verdict.HOST)[0], number=1), *chats(23.1, 1)]
    rows[-1] = replace(rows[-1], number=2)
    run = recording(
        rows,
        plant=Plant((PLANT.hosts[0], slow)),
        waits={"c0": waited((3.1, 23.1))},
        changes=changes((3.1, 23.1), detail="b failed 1 times in a row: reset by peer"),
    )
    assert "[hosts.b] breaker = { reset_s = 5 }" in of(run)["host-down"].remedy
    again = replace(run, attempts=[*run.attempts, *_failed_at(run, 10.0)])
    assert "reset_s" not in of(again)["host-down"].remedy, "it was tried, and still was away"


def _failed_at(run: Recording, at: float) -> Sequence[Attempt]:
    first = next(a for a in run.attempts if a.verdict is Verdict.HOST)
    return [replace(first, number=3, started_at=at, ended_at=at + 0.1)]
