"""Fallback and money: rule 4, with budgets of hosts and of lanes (C6)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from penstock.model import (
    BreakerRule,
    Fallback,
    Gate,
    Host,
    Lane,
    Outcome,
    Plant,
    Price,
    RetryRule,
    Task,
    Verdict,
)
from penstock.scheduling import messages as m
from penstock.scheduling.budget import DAY_S, Budget, Costs, day_of, told
from penstock.scheduling.scheduler import Scheduler

NOON = 20_000 * DAY_S + DAY_S / 2
MIDNIGHT = 20_001 * DAY_S


def cost(usd: float | None, verdict: Verdict = Verdict.DONE) -> Outcome:
    return Outcome(verdict, error=None if verdict is Verdict.DONE else "it failed", cost_usd=usd)


def cloud(budget: float | None = 5.0, slots: int = 9, after_s: float = 30.0, name: str = "cloud") -> Host:
    return Host(name, "none", slots, fallback=Fallback(after_s, budget))


def plant(*hosts: Host, lanes: tuple[Lane, ...] = (), gates: tuple[Gate, ...] = ()) -> Plant:
    return Plant(hosts, lanes, gates, retry=RetryRule(base_s=1.0))


def tasks(*ids: str, lane: str = "default", host: str | None = None) -> m.Submitted:
    return m.Submitted([Task("k", id=i, lane=lane, host=host) for i in ids])


def placed(decisions: Iterable[m.Decision]) -> dict[str, str]:
    return {d.task: d.host for d in decisions if isinstance(d, m.Start)}


def gates(decisions: Iterable[m.Decision]) -> list[tuple[str, bool, str]]:
    return [(d.gate, d.open, d.detail) for d in decisions if isinstance(d, m.GateChange)]


def detail(s: Scheduler, decisions: Iterable[m.Decision], reason: str) -> str:
    (found,) = {d.detail for d in decisions if isinstance(d, m.WaitChange) and d.reason == reason}
    return found


# ---- rule 4: when fallback hosts open


def test_a_task_that_only_fallback_hosts_serve_starts_at_once() -> None:
    """C6: with no host of one's own there is nothing to wait for."""
    s = Scheduler(plant(Host("own", "none", serves=("other",)), cloud()))
    assert placed(s.apply(tasks("a"), NOON)) == {"a": "cloud"}


@pytest.mark.parametrize("how", ["paused", "gated"])
def test_own_hosts_that_are_held_are_not_down(how: str) -> None:
    """C6: whoever pauses a host, or gates it, wants to wait: the cloud opens after `after_s`, no earlier."""
    gate = Gate("vram", probe="x", min=3, holds_hosts=("own",), on_error="open")
    s = Scheduler(plant(Host("own", "none"), cloud(), gates=(gate,)))
    s.apply(m.PauseSet("host", "own", True) if how == "paused" else m.GateRead("vram", 1.0), NOON)
    assert not placed(s.apply(tasks("a"), NOON))
    assert s.waiting_reason("a") == ("paused" if how == "paused" else "gate:vram")
    assert placed(s.apply(m.Tick(), NOON + 30)) == {"a": "cloud"}


def test_fallback_opens_to_a_task_that_own_hosts_failed() -> None:
    """C6: at once, and own hosts go first when another of them is free."""
    own = [Host(n, "none", breaker=BreakerRule(failures=9)) for n in ("one", "two")]
    s = Scheduler(plant(*own, cloud()))
    assert placed(s.apply(tasks("a"), NOON)) == {"a": "one"}
    assert placed(s.apply(m.Finished("a", 1, cost(None, Verdict.HOST)), NOON + 1)) == {"a": "two"}
    s.apply(tasks("b"), NOON + 2)
    assert placed(s.apply(m.Finished("a", 2, cost(None, Verdict.HOST)), NOON + 3)) == {"a": "cloud"}


def test_a_task_that_came_back_overflows_by_its_own_age() -> None:
    """C6: `after_s` counts from when it was first ready, also behind more urgent tasks that came later."""
    s = Scheduler(plant(Host("own", "none"), cloud()))
    s.apply(m.Submitted([Task("k", id="old", priority=4)]), NOON)
    s.apply(m.Finished("old", 1, cost(None, Verdict.TEMPORARY), 0.0), NOON + 1)
    s.apply(m.Submitted([Task("k", id=i, priority=0) for i in "ab"]), NOON + 1.1)
    s.apply(m.Tick(), NOON + 2)
    assert s.waiting_reason("old") == "slots:own"
    assert s.next_wake() == pytest.approx(NOON + 30)
    assert placed(s.apply(m.Tick(), NOON + 30)) == {"old": "cloud"}


# ---- a host's budget


def test_a_spent_budget_closes_its_host_until_the_day_is_over() -> None:
    """C6: whatever the verdict, each cost counts; at 00:00 UTC the host opens by itself."""
    s = Scheduler(plant(cloud(0.5, slots=1)))
    s.apply(tasks("a", "b", "c"), NOON)
    told = s.apply(m.Finished("a", 1, cost(0.3)), NOON + 1)
    assert m.Spend("a", 1, "cloud", "default", 20_000, NOON + 1, 0.3) in told
    assert placed(told) == {"b": "cloud"}
    told = s.apply(m.Finished("b", 1, cost(0.22, Verdict.TEMPORARY)), NOON + 2)
    assert not placed(told)
    text = "0.52 of 0.50 USD spent today; opens 00:00 UTC"
    assert gates(told) == [("budget:cloud", False, text)]
    assert s.waiting_reason("c") == "gate:budget:cloud"
    assert s.statistics().gates["budget:cloud"] == (False, text)
    assert s.next_wake() is not None
    assert not placed(s.apply(m.Tick(), MIDNIGHT - 0.001))
    told = s.apply(m.Tick(), MIDNIGHT)
    assert len(placed(told)) == 1
    assert ("budget:cloud", True, "") in gates(told)


def test_what_runs_counts_as_what_others_cost() -> None:
    """C6: a budget is not overdrawn by calls that are under way; those that cost less open it again."""
    s = Scheduler(plant(cloud(1.0)))
    s.apply(tasks("first"), NOON)
    told = s.apply_all([m.Finished("first", 1, cost(0.3)), tasks(*"abcdef")], NOON + 1)
    assert list(placed(told)) == ["a", "b", "c"]
    text = "0.30 of 1.00 USD spent today, 0.90 more expected of what runs; opens 00:00 UTC"
    assert gates(told)[-1] == ("budget:cloud", False, text)
    assert detail(s, told, "gate:budget:cloud") == text
    told = s.apply(m.Finished("a", 1, cost(0.18)), NOON + 2)
    assert placed(told) == {"d": "cloud"}
    told = s.apply_all([m.Finished(t, 1, cost(0.4)) for t in "bc"], NOON + 3)
    assert not placed(told)
    text = "1.28 of 1.00 USD spent today; opens 00:00 UTC"
    assert gates(told) == [("budget:cloud", False, text)]
    assert detail(s, told, "gate:budget:cloud") == text


def test_the_first_calls_of_a_day_are_expected_to_cost_what_yesterdays_did() -> None:
    s = Scheduler(plant(cloud(1.0)))
    s.apply(tasks("a"), NOON)
    s.apply(m.Finished("a", 1, cost(0.4)), NOON + 1)
    assert list(placed(s.apply(tasks(*"bcdef"), MIDNIGHT + 1))) == ["b", "c", "d"]


def test_a_clock_that_leaps_over_midnight_begins_a_day() -> None:
    """C6: and one that is set back does not spend the day before again."""
    s = Scheduler(plant(cloud(0.5, slots=1)))
    s.apply(tasks("a", "b", "c", "d"), NOON)
    assert not placed(s.apply(m.Finished("a", 1, cost(0.6)), NOON + 1))
    assert placed(s.apply(m.Tick(), NOON + 3 * DAY_S)) == {"b": "cloud"}
    told = s.apply(m.Finished("b", 1, cost(0.6)), NOON)
    assert [d.day for d in told if isinstance(d, m.Spend)] == [20_003]
    assert not placed(told)
    # The cost that closes it comes together with the leap: it is the new day's.
    told = s.apply(m.Tick(), NOON + 4 * DAY_S)
    assert placed(told) == {"c": "cloud"}
    assert not placed(s.apply(m.Finished("c", 1, cost(0.6)), NOON + 9 * DAY_S))


def test_a_budget_of_nothing_is_closed_every_day() -> None:
    s = Scheduler(plant(cloud(0.0)))
    told = s.apply(tasks("a"), NOON)
    assert gates(told)[-1] == ("budget:cloud", False, "0.00 of 0.00 USD spent today; opens 00:00 UTC")
    assert not placed(s.apply(m.Tick(), MIDNIGHT))
    assert s.next_wake() == MIDNIGHT + DAY_S


@pytest.mark.parametrize("usd", [0.0, -1.0, float("nan"), float("inf")])
def test_a_cost_that_is_no_amount_of_money_is_not_counted(usd: float) -> None:
    s = Scheduler(plant(cloud(1.0)))
    s.apply(tasks("a"), NOON)
    told = s.apply(m.Finished("a", 1, cost(usd)), NOON)
    assert not [d for d in told if isinstance(d, m.Spend)]
    assert placed(s.apply(tasks("b"), NOON)) == {"b": "cloud"}


def test_a_late_result_spends_nothing_twice() -> None:
    s = Scheduler(plant(cloud(1.0)))
    s.apply(tasks("a"), NOON)
    told = s.apply_all([m.Finished("a", 1, cost(0.6)), m.Finished("a", 1, cost(0.6))], NOON)
    assert [d.usd for d in told if isinstance(d, m.Spend)] == [0.6]
    assert placed(s.apply(tasks("b"), NOON)) == {"b": "cloud"}


def test_what_was_put_back_is_no_longer_expected_to_cost() -> None:
    s = Scheduler(plant(cloud(1.0)))
    s.apply(tasks("a"), NOON)
    s.apply_all([m.Finished("a", 1, cost(0.6)), tasks("b", "c")], NOON)
    assert s.waiting_reason("c") == "gate:budget:cloud"
    told = s.apply(m.PutBack("b", 1), NOON + 1)
    assert gates(told)[0] == ("budget:cloud", True, "")
    assert placed(told) == {"b": "cloud"}


def test_a_restart_forgets_no_money() -> None:
    """C6: today's ledger is spent, yesterday's tells what calls cost; other hosts and days do not matter."""
    s = Scheduler(plant(cloud(1.0)))
    told = s.apply_all(
        [
            m.Spent("cloud", "x", 19_998, 90.0, 1),
            m.Spent("cloud", "x", 19_999, 0.3, 1),
            m.Spent("cloud", "y", 19_999, 0.5, 1),
            m.Spent("gone", "gone", 20_000, 50.0, 1),
            tasks(*"abcd"),
        ],
        NOON,
    )
    assert list(placed(told)) == ["a", "b", "c"]
    s = Scheduler(plant(cloud(1.0)))
    assert not placed(s.apply_all([m.Spent("cloud", "x", 20_000, 1.0, 7), tasks("a")], NOON))
    assert s.waiting_reason("a") == "gate:budget:cloud"
    assert placed(s.apply(m.Tick(), MIDNIGHT)) == {"a": "cloud"}


# ---- which reason is told


def test_own_hosts_that_are_full_are_named_before_a_spent_budget() -> None:
    """C6, rule 6: the own host is the nearest to taking the task; the cloud is only another way."""
    s = Scheduler(plant(Host("own", "none"), cloud(0.0, after_s=0.0)))
    s.apply(tasks("a", "b"), NOON)
    assert s.waiting_reason("b") == "slots:own"


def test_a_spent_budget_is_named_when_own_hosts_are_down() -> None:
    """C6, rule 6: that own hosts are down is half the truth; the cloud would have taken it."""
    s = Scheduler(plant(Host("own", "none"), cloud(0.0)))
    s.apply(m.HostHealth("own", False, "gone"), NOON)
    s.apply(tasks("a"), NOON)
    assert s.waiting_reason("a") == "gate:budget:cloud"
    assert placed(s.apply(m.HostHealth("own", True), NOON + 1)) == {"a": "own"}


def test_a_task_that_names_a_host_is_held_by_its_budget() -> None:
    s = Scheduler(plant(Host("own", "none"), cloud(0.0)))
    s.apply(tasks("a", host="cloud"), NOON)
    assert s.waiting_reason("a") == "gate:budget:cloud"


# ---- a lane's budget

PAID = Host("paid", "none", 9, prices={"m": Price(1.0, 2.0)})


def test_a_lanes_budget_closes_hosts_that_cost_money_to_that_lane() -> None:
    """C6: not to the others, and it goes on where nothing costs."""
    s = Scheduler(
        plant(Host("free", "none"), PAID, lanes=(Lane("web", budget_usd_per_day=0.5), Lane("rich")))
    )
    s.apply(tasks("a", lane="web", host="paid"), NOON)
    told = s.apply(m.Finished("a", 1, cost(0.5)), NOON + 1)
    text = "0.50 of 0.50 USD spent today; opens 00:00 UTC"
    assert gates(told) == [("budget:lane:web", False, text)]
    told = s.apply(tasks("b", "c", lane="web"), NOON + 2)
    assert placed(told) == {"b": "free"}
    assert s.waiting_reason("c") == "slots:free"
    assert placed(s.apply(tasks("d", lane="rich"), NOON + 3)) == {"d": "paid"}
    told = s.apply(m.HostHealth("free", False, "gone"), NOON + 4)
    assert s.waiting_reason("c") == "gate:budget:lane:web"
    assert detail(s, told, "gate:budget:lane:web") == text
    told = s.apply(tasks("e", lane="web", host="paid"), NOON + 5)
    assert s.waiting_reason("e") == "gate:budget:lane:web"
    assert placed(s.apply(m.Tick(), MIDNIGHT)) == {"c": "paid"}
    assert s.waiting_reason("e") == "gate:budget:lane:web", "what runs is expected to cost 0.50 too"


def test_a_host_costs_money_as_soon_as_one_of_its_attempts_did() -> None:
    """C6: a lane's budget holds where the config knows no price; what runs there counts from then on."""
    s = Scheduler(plant(Host("agent", "none", 3), lanes=(Lane("web", budget_usd_per_day=1.0),)))
    assert len(placed(s.apply(tasks(*"abcde", lane="web"), NOON))) == 3
    told = s.apply(m.Finished("a", 1, cost(0.4)), NOON + 1)
    assert not placed(told)
    assert s.waiting_reason("d") == "gate:budget:lane:web"
    assert list(placed(s.apply(m.Finished("b", 1, cost(0.1)), NOON + 2))) == ["d"]


def test_a_lane_out_of_money_waits_for_the_free_hosts_it_has() -> None:
    """C6: its own hosts that cost money are well: fallback opens with time, not at once."""
    spare = Host("spare", "none", fallback=Fallback(30.0))
    s = Scheduler(plant(PAID, spare, lanes=(Lane("web", budget_usd_per_day=0.0),)))
    assert not placed(s.apply(tasks("a", lane="web"), NOON))
    assert s.waiting_reason("a") == "gate:budget:lane:web"
    assert placed(s.apply(m.Tick(), NOON + 30)) == {"a": "spare"}


def test_a_full_lane_is_named_after_its_budget() -> None:
    """Rule 6: gate before lane."""
    s = Scheduler(plant(PAID, lanes=(Lane("web", max_running=1, budget_usd_per_day=1.0),)))
    s.apply(tasks("a", lane="web"), NOON)
    s.apply_all([m.Finished("a", 1, cost(0.6)), tasks("b", "c", lane="web")], NOON)
    assert s.waiting_reason("c") == "gate:budget:lane:web"


# ---- words


def test_a_closed_budget_in_words() -> None:
    assert told(5.0, 5.02) == "5.02 of 5.00 USD spent today; opens 00:00 UTC"
    assert told(0.005, 0.0051) == "0.0051 of 0.005 USD spent today; opens 00:00 UTC"
    assert (
        told(5, 4.9, 0.2) == "4.90 of 5.00 USD spent today, 0.20 more expected of what runs; opens 00:00 UTC"
    )


def test_cents_add_up_to_a_budget() -> None:
    budget = Budget(Gate("budget:x", on_error="open"), 1.0, ())
    for _ in range(10):
        assert budget.open
        budget.add(0.1, NOON)
        budget.judge(NOON)
    assert not budget.open
    assert day_of(NOON) == 20_000
    assert budget.opens_at == MIDNIGHT
    assert Costs(1).mean_usd == 0.0
