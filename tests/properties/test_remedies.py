"""E9: what `why` recommends for a run is what `whatif` answers: of random small runs, over or half-way."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.diagnosis.recording import recording_of
from penstock.diagnosis.whatif.gains import WORTH
from penstock.diagnosis.why.waiting import of_run
from penstock.whatif import Asked, Plays
from tests.properties.test_replay import SOAK, Story, played, stories


def gain_s(plays: Plays, asked: Asked) -> tuple[float, float]:
    """What `whatif` prints: the makespan without the change, and by how much it is shorter with it."""
    answer = plays.answer(asked)
    before_s, after_s = answer.before.makespan_s, answer.after.makespan_s
    return before_s, 0.0 if before_s == after_s == inf else before_s - after_s


def asked(words: str) -> Asked:
    """A change, from how it is told to people."""
    if words.startswith("without "):
        return Asked(unset=(words.removeprefix("without "),))
    key, _, value = words.partition(" = ")
    return Asked({key: value})


@settings(max_examples=300 if SOAK else 60, deadline=None)
@given(stories(), st.sampled_from([inf, inf, 6.0, 12.0]))
def test_a_named_remedy_shortens_the_run_by_what_it_says(story: Story, until: float) -> None:
    history, now = played(story, until)
    if not history.records:
        return
    said = of_run("r", history, story.plant, now)
    if said.remedy is None and not said.in_vain:
        return
    if said.remedy is not None and said.remedy.change is None:
        assert said.remedy.gain_s is None, "what cannot be played promises no seconds"
        return
    recording = recording_of(history, story.plant, now)
    if not any(attempt.ended_at for attempt in recording.attempts):
        return
    plays = Plays(recording)
    if said.remedy is not None and said.remedy.change is not None:
        change = said.remedy.change
        before_s, less_s = gain_s(plays, Asked(change.settings, change.unset, change.dispatcher))
        assert less_s >= WORTH * before_s if before_s < inf else less_s == inf
        if said.remedy.gain_s is not None:
            assert said.remedy.gain_s == pytest.approx(less_s, abs=1e-3)
    for words in said.in_vain:
        before_s, less_s = gain_s(plays, asked(words))
        assert less_s < max(WORTH * before_s, 1e-9), words
