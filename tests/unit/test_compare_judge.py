"""From what servers saw to figures: room, order, fates, words, rows of a picture. No clock, no process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.compare.arena import _die
from penstock.compare.contenders import CONTENDERS, LEGACY, OURS
from penstock.compare.judge import Figures, Raw, Span, Taken, judge
from penstock.compare.match import Comparison, scale_of
from penstock.compare.picture import in_rows
from penstock.compare.plan import Ending
from penstock.compare.stories import MOST_TOKENS, STORIES, TOKENS_PER_S, Death, Story, with_death
from penstock.compare.told import COLUMNS, FATES, fates, rows
from penstock.compare.workloads import Workload, duration_s, one_by_one_s
from penstock.model import Host, Plant, Task
from penstock.testing import ModelServer

SCALE = 0.1
START = 1000.0
TAKEN = Taken(50_000_000, 3, 1, 7, 0.25)


def story(**fields: object) -> Story:
    hosts = (Host("one", "openai", slots=1, serves=("a",)), Host("two", "openai", slots=2, serves=("a", "b")))
    tasks = (
        Task("a", {"duration_s": 10}, id="low", priority=4),
        Task("a", {"duration_s": 10}, id="high", priority=0),
        Task("b", {"duration_s": 20}, id="other", priority=2),
    )
    made = Story(Workload("tiny", "Three tasks", Plant(hosts), tasks), "It shows nothing.")
    return replace(made, **fields)  # type: ignore[arg-type]


def span(
    task: str, host: str, arrived: float, ended: float, began: float | None = -1, fate: str = "served"
) -> Span:
    """In seconds of the story."""
    real = [None if at is None else START + at * SCALE for at in (arrived if began == -1 else began, ended)]
    return Span(task, host, START + arrived * SCALE, real[0], real[1] or 0.0, fate)


def raw(*spans: Span, endings: tuple[Ending, ...] | None = None, makespan_s: float = 30.0) -> Raw:
    if endings is None:
        endings = tuple(Ending(s.task, s.task) for s in spans if s.fate == "served")
    return Raw(START, START + makespan_s * SCALE, endings, "", (), spans, TAKEN, 100, 0.5)


def test_c10_makespan_slot_use_and_what_it_took() -> None:
    spans = (span("high", "one", 0, 10), span("low", "one", 10, 20), span("other", "two", 0, 20))
    figures = judge(story(), OURS, SCALE, raw(*spans, makespan_s=20))
    assert figures.makespan_s == pytest.approx(20)
    assert figures.to_ideal == pytest.approx(1.0)
    assert figures.slot_use == pytest.approx(40 / (3 * 20))
    assert (figures.peak_memory_mb, figures.threads, figures.switches) == (50, 3, 100)
    assert (figures.inversions, figures.over_full, figures.inside, figures.done) == (0, 0, 0, 3)
    assert figures.all_done


def test_c2_a_start_that_passes_a_more_urgent_task_is_counted() -> None:
    passed = (span("low", "one", 1, 10), span("high", "one", 10, 20), span("other", "two", 0, 20))
    assert (
        judge(story(), OURS, SCALE, raw(*passed)).inversions == 1
    )  # `other` is on a host that could take it
    at_once = (span("low", "one", 0, 10), span("high", "two", 0.1, 10), span("other", "two", 0, 20))
    assert judge(story(), OURS, SCALE, raw(*at_once)).inversions == 0, "one step has no order"
    late = story(arrives_s={"high": 15.0})
    assert judge(late, OURS, SCALE, raw(*passed)).inversions == 0, "nobody passed what was not there"


def test_calls_beyond_the_slots_and_inside_the_server_are_counted() -> None:
    spans = (
        span("high", "one", 0, 10),
        span("low", "one", 1, 20, began=10),
        span("other", "two", 0, 20),
    )
    figures = judge(story(), OURS, SCALE, raw(*spans))
    assert (figures.over_full, figures.inside) == (1, 1)
    slow = story(at_once={"two": 1})
    assert judge(slow, OURS, SCALE, raw(span("other", "two", 0, 20))).over_full == 0


def test_what_is_lost_failed_wrong_and_done_again_is_told_apart() -> None:
    endings = (Ending("low", error="no", tries=3), Ending("high", "high", tries=2))
    figures = judge(story(), OURS, SCALE, raw(endings=endings))
    assert (figures.done, figures.failed, figures.lost, figures.retried) == (1, ("low",), ("other",), 1)
    assert figures.failed_calls == 4
    assert not figures.all_done
    mixed_up = judge(story(), OURS, SCALE, raw(endings=(Ending("low", "high"),)))
    assert mixed_up.lost == ("high", "low", "other"), "another task's answer is none"


# ---- words


def figures_of(contender: str, makespan_s: float, **more: object) -> Figures:
    made = Figures(contender, ideal_s=20, makespan_s=makespan_s, done=3)
    return replace(made, **more)  # type: ignore[arg-type]


def test_c10_the_tables_own_figures_stand_beside_ours() -> None:
    both = Comparison(story(claim=(40, 20)), 1.0, (figures_of(LEGACY, 41), figures_of(OURS, 20.4)))
    assert both.claimed == "The home lab's table: 40 s → 20 s, 2.00 ×. Here: 41 s → 20 s, 2.01 ×."
    assert Comparison(story(claim=(40, 20)), 1.0, (figures_of(OURS, 20.4),)).claimed == ""


def test_the_verdict_says_who_was_soonest_who_was_later_and_what_was_not_done() -> None:
    comparison = Comparison(
        story(),
        1.0,
        (
            figures_of(LEGACY, 40),
            figures_of("thread_pool", 21, inversions=2),
            figures_of("asyncio_limits", 10, done=1, failed=("low",), lost=("high",)),
            figures_of(OURS, 20),
        ),
    )
    assert comparison.verdict == (
        "All done soonest: thread pool, Penstock. Later: thread per kind (2.00 × as long). "
        "Starts that passed a more urgent task: thread pool 2. "
        "Not done: asyncio + semaphores 2 of 3 tasks."
    )
    assert not comparison.ok


def test_only_a_death_excuses_what_is_not_done_and_never_ours() -> None:
    undone = figures_of("thread_pool", 20, failed=("low",), down=(3.0,))
    dying = with_death(story(), "two")
    assert not Comparison(story(), 1.0, (undone,)).ok
    assert Comparison(dying, 1.0, (undone, figures_of(OURS, 20, down=(3.0, 9.0)))).ok
    assert not Comparison(dying, 1.0, (figures_of(OURS, 20, lost=("low",), down=(3.0,)),)).ok
    broken = Comparison(dying, 1.0, (Figures.broken("thread_pool", "it ended early"),))
    assert not broken.ok
    assert broken.verdict == "Broken: thread pool (it ended early)."
    assert not Comparison(story(), 1.0, (figures_of(OURS, 20, over_full=1),)).ok


def test_a_death_that_did_not_happen_is_a_failure_and_told() -> None:
    spared = Comparison(
        with_death(story(), "two"), 1.0, (figures_of(LEGACY, 20, down=(3.0,)), figures_of(OURS, 20))
    )
    assert not spared.ok
    assert spared.verdict.endswith("two did not die before they were through: Penstock.")
    assert "did not die" not in Comparison(story(), 1.0, spared.figures).verdict


@pytest.mark.parametrize(
    ("name", "host", "after_served"),
    [
        ("six", "skadi", 0),  # one task
        ("six", "fenrir", 0),  # three, all at once
        ("council", "server", 0),
        ("one-at-a-time", "server", 2),
        ("forty", "surtr", 2),
        ("urgent", "fenrir", 2),  # it has none of its own, but a share
    ],
)
def test_a_host_dies_in_a_call_that_it_will_have(name: str, host: str, after_served: int) -> None:
    made = with_death(STORIES[name], host).death
    assert made is not None
    assert (made.host, made.after_served) == (host, after_served)
    assert 0 < made.latest_s < STORIES[name].ideal_s, "nobody is through by then"


async def test_a_host_that_is_given_no_calls_dies_all_the_same() -> None:
    moments: list[float] = []
    async with ModelServer() as server:
        await _die(Death("server", 2, 0.0, 0.01), 1.0, server, moments, least_s=0.0)
        assert len(moments) == 2
        assert server.stats.served == 0


def test_every_row_has_every_column_also_of_a_way_that_broke() -> None:
    all_ways = (figures_of(LEGACY, 40, failed_calls=2), Figures.broken("thread_pool", "ended early"))
    comparison = Comparison(with_death(story(), "two"), 1.0, all_ways)
    assert [len(row) for row in rows(comparison)] == [len(COLUMNS)] * 2
    columns, lines = fates(comparison)
    assert list(columns) == list(FATES)
    assert [line[0] for line in lines] == [CONTENDERS[LEGACY]]
    assert lines[0][-1] == "each task for itself"


def test_calls_are_drawn_in_the_first_free_row() -> None:
    spans = [
        Span("a", "h", 0, 0, 5, "served"),
        Span("b", "h", 1, 1, 3, "served"),
        Span("c", "h", 3, 3, 9, "served"),
        Span("d", "h", 4, 4, 6, "served"),
    ]
    assert [(row, one.task) for row, one in in_rows(spans)] == [(0, "a"), (1, "b"), (1, "c"), (2, "d")]


# ---- the stories


@pytest.mark.parametrize("name", STORIES)
def test_every_story_can_be_played(name: str) -> None:
    one = STORIES[name]
    tasks = one.workload.tasks
    ids = {task.id for task in tasks}
    hosts = {host.name for host in one.workload.plant.hosts}
    assert len(ids) == len(tasks)
    assert {*one.arrives_s} <= ids
    assert {*one.at_once} <= hosts
    assert one.death is None or one.death.host in hosts
    for task in tasks:
        assert any(host.serves_kind(task.kind) for host in one.workload.plant.hosts)
        tokens = duration_s(task) * TOKENS_PER_S
        assert tokens == int(tokens) <= MOST_TOKENS, "a call's time is told in whole tokens"
        assert " " not in task.id, "an answer's first word is the task's id"
    assert one.shows.endswith(".")
    assert 0 < scale_of(one, None) <= 1
    assert scale_of(one, 0.5) == 0.5


def test_c10_d8_the_stories_have_the_figures_of_the_tables() -> None:
    """C10: 130 → 90, 200 → 100; D8: six calls of 10 s take 10 s where six run at once, 60 s where one does."""
    assert {
        name: STORIES[name].ideal_s for name in ("six", "forty", "fifty", "council", "one-at-a-time")
    } == {
        "six": 90,
        "forty": 100,
        "fifty": 300,
        "council": 10,
        "one-at-a-time": 60,
    }
    for name in ("six", "forty"):
        one = STORIES[name]
        assert one.claim == (one_by_one_s(one.workload), one.ideal_s)


def test_what_comes_late_cannot_be_done_sooner() -> None:
    assert story(arrives_s={"other": 100.0}).ideal_s == 120
