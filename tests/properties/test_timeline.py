"""Promise 5 in pictures: the pieces of every bar tile its time from queued to ended (A6, E1)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.diagnosis.history import History
from penstock.diagnosis.recording import Recording, recording_of
from penstock.diagnosis.timeline.bars import Sort, Timeline, timeline_of
from penstock.diagnosis.timeline.folding import fold, means
from penstock.diagnosis.timeline.page import page_data
from penstock.model import Attempt, State, Verdict
from tests.simulation.worlds import play
from tests.unit.timeline_rig import attempt, record, recording, task

moments = st.integers(0, 200).map(lambda n: n / 4)


@st.composite
def logs(draw: st.DrawFn) -> Recording:
    """What a log of another system may say: attempts that overlap, begin too early, take no time, never end."""
    tasks, attempts = [], []
    for number in range(draw(st.integers(1, 8))):
        id = f"t{number}"
        spans = draw(st.lists(st.tuples(moments, moments), max_size=4))
        open_end = draw(st.booleans())
        for place, (start, length) in enumerate(sorted(spans)):
            last = place == len(spans) - 1
            end = None if last and open_end else start + length
            attempts.append(attempt(id, place + 1, f"h{number % 3}", start, end))
        queued = draw(moments)
        ended = None if open_end else max([queued, *(start + length for start, length in spans)])
        state = State.RUNNING if open_end and spans else State.QUEUED if open_end else State.DONE
        tasks.append(record(task(id, queued=queued), number, state, None, ended))
    return recording(tasks, attempts, {}, end=draw(st.integers(50, 120)), hosts=None)


def tiles(made: Timeline) -> None:
    for bar in made.bars:
        for one, next_one in pairwise(bar.pieces):
            assert one.end == next_one.start
        assert all(piece.end >= piece.start for piece in bar.pieces)
        assert bar.start <= bar.record.task.queued_at
        if bar.record.ended_at is not None:
            assert bar.end >= bar.record.ended_at


def adds_up(made: Timeline) -> None:
    """What is underneath holds the same seconds as the bars."""
    waited = sum(bar.waited_s for bar in made.bars)
    assert sum(made.reasons.values()) == pytest.approx(waited)
    if made.seconds > 0:
        coarse = (
            1e-6 + len(made.bars) * 1e-6 * 7 / made.seconds
        )  # a moment since the epoch is told to 0.24 µs
        assert means(made.queue, made.begin, made.end, 7) == pytest.approx(
            [sum(part) for part in zip(*_seconds(made), strict=True)], abs=coarse
        )
        row = fold(made.bars, made.begin, made.end, 7)
        assert all(cell is None or 0 <= cell.share <= 1 + 1e-9 for cell in row)


def _seconds(made: Timeline) -> list[list[float]]:
    width = made.seconds / 7
    rows = [[0.0] * 7]
    for bar in made.bars:
        for piece in bar.pieces:
            if piece.sort is Sort.WAITING:
                starts = [made.begin + column * width for column in range(7)]
                rows.append([max(0, min(piece.end, s + width) - max(piece.start, s)) / width for s in starts])
    return rows


def comes_back(made: Timeline) -> None:
    """The page's columns hold the same bars, to a tick."""
    data = page_data(made)
    place = 0
    for number, bar in enumerate(made.bars):
        at = data["tasks"]["queued"][number]
        for piece in bar.pieces:
            assert at == round((piece.start - made.begin) / data["unit"])
            at += data["pieces"]["length"][place]
            assert data["whats"][data["pieces"]["what"][place]]["name"] == piece.what
            place += 1
    assert place == len(data["pieces"]["what"])


def joined(spans: list[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    """Stretches of one reason as one: an attempt that took no time may stand in the middle of a wait."""
    made: list[tuple[str, float, float]] = []
    for reason, start, end in spans:
        if made and made[-1][0] == reason and made[-1][2] == start:
            start = made.pop()[1]
        made.append((reason, start, end))
    return made


@given(logs())
def test_pieces_tile_whatever_a_log_says(log: Recording) -> None:
    made = timeline_of(log)
    tiles(made)
    adds_up(made)
    comes_back(made)


@pytest.mark.parametrize("seed", range(30))
def test_pieces_tile_the_lives_of_real_schedules(seed: int) -> None:
    """Random worlds with faults, through the real scheduler; reasons are those that the waits tell."""
    model = play(seed).referee
    history = History(
        records=[row.record() for row in model.rows.values()],
        attempts=list(model.attempts.values()),
        others=list(model.attempts.values()),
        dependencies={id: row.record() for id, row in model.rows.items()},
        routes=model.routes,
        moves=model.moves,
        stretches=model.stretches,
        epochs=model.epochs,
    )
    source = recording_of(history, model.plant, model.now)
    made = timeline_of(source)
    tiles(made)
    adds_up(made)
    comes_back(made)
    attempts: dict[str, list[Attempt]] = {}
    for one in source.attempts:
        attempts.setdefault(one.task, []).append(one)
    for bar in made.bars:
        id = bar.record.task.id
        assert bar.start == bar.record.task.queued_at
        waits = [(p.what, p.start, p.end) for p in bar.pieces if p.sort is Sort.WAITING]
        assert joined(waits) == joined([(wait.reason, wait.start, wait.end) for wait in source.waits[id]])
        runs = [(p.attempt, p.what, p.start) for p in bar.pieces if p.sort is Sort.RUNNING]
        assert runs == [(one.number, one.host, one.started_at) for one in attempts.get(id, [])]
        if any(one.verdict is Verdict.DONE for one in attempts.get(id, [])):
            assert bar.pieces[-1].verdict == "done"
