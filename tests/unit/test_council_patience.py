"""How long a question waits for the library, which is beside it: not much longer than for the answers (D3, D7)."""

from __future__ import annotations

import pytest

from penstock.config.councils import Mode, Quick
from penstock.council.plan.quick import expects_comparison
from penstock.council.plan.so_far import AGREEMENT_PATIENCE_S, RETRIEVE_PATIENCE_S
from tests.unit.course_rig import ASKED_AT, LIBRARY, PASSAGES, Table, agreed, chat, council, found, question


def test_passages_that_do_not_come_are_done_without_and_that_is_said() -> None:
    table = Table(council("A", retrieval=LIBRARY))
    assert table.names() == ["retrieve"]
    assert table.look().wake_at == ASKED_AT + RETRIEVE_PATIENCE_S
    table.pass_s(RETRIEVE_PATIENCE_S - 0.1)
    assert table.look().cancel == ()
    table.pass_s(0.1)
    last = table.look()
    assert (last.cancel, last.ask, last.wake_at) == (("retrieve",), (), None), "its end decides"
    table.cancel("retrieve")
    assert table.names() == ["member/A"]
    table.say("A", "It scatters.")
    retrieval = table.record()["retrieval"]
    assert (retrieval["used"], retrieval["took_s"]) == (False, RETRIEVE_PATIENCE_S)
    assert retrieval["problem"] == "the search was given up: the library did not answer within 15 s"


def test_passages_of_the_last_moment_count() -> None:
    table = Table(council("A", retrieval=LIBRARY))
    table.look()
    table.pass_s(RETRIEVE_PATIENCE_S)
    assert table.look().cancel == ("retrieve",)
    table.done("retrieve", found(*PASSAGES))
    (step,) = table.look().ask
    assert "Fact 1." in str(step.payload)


def test_a_search_that_somebody_cancelled_is_not_said_to_be_slow() -> None:
    table = Table(council("A", retrieval=LIBRARY))
    table.look()
    table.pass_s(1)
    table.cancel("retrieve", "cancelled by a client")
    table.look()
    table.say("A", "It scatters.")
    assert table.record()["retrieval"]["problem"] == "the search failed: cancelled by a client"


def summed_up() -> Table:
    """The answer is there, four seconds after it was begun to be compared."""
    table = Table(council("A", "B"))
    table.look()
    table.say("A", "It scatters.")
    table.say("B", "It is painted.")
    assert table.names() == ["agreement", "synthesis/SHENRON"]
    assert table.look().wake_at is None, "while the chair writes there is time"
    table.pass_s(4)
    table.done("synthesis/SHENRON", chat("Light scatters."))
    return table


def test_agreement_is_not_waited_for_much_longer_than_for_the_answer() -> None:
    table = summed_up()
    given_up_at = ASKED_AT + 4 + AGREEMENT_PATIENCE_S
    assert table.look().wake_at == given_up_at
    table.pass_s(AGREEMENT_PATIENCE_S)
    last = table.look()
    assert (last.cancel, last.record) == (("agreement",), None)
    table.pass_s(0.5)
    table.cancel("agreement")
    record = table.record()
    assert record["synthesis"]["text"] == "Light scatters."
    assert (record["agreement"]["measured"], record["agreement"]["score"]) == (False, None)
    assert record["agreement"]["why"] == "measuring it was given up: the answer was there 10 s before"
    assert record["total_time"] == 4 + AGREEMENT_PATIENCE_S + 0.5


def test_agreement_that_is_late_but_in_time_counts() -> None:
    table = summed_up()
    table.pass_s(AGREEMENT_PATIENCE_S - 1)
    assert table.look().cancel == ()
    table.done("agreement", agreed(0.5))
    assert table.record()["agreement"]["score"] == 0.5


def test_agreement_that_was_cancelled_before_its_time_was_not_too_slow() -> None:
    table = summed_up()
    table.pass_s(1)
    table.cancel("agreement", "cancelled by a client")
    assert table.record()["agreement"]["why"] == "measuring it failed: cancelled by a client"


def test_a_list_of_too_few_answers_does_not_wait_for_the_library_either() -> None:
    table = Table(council("A", "B", "C", min_answers=3))
    table.look()
    table.say("A", "It scatters.")
    table.say("B", "It is painted.")
    table.pass_s(2)
    table.fail("member/C", "surtr is down")
    assert table.names() == ["agreement"]
    assert table.look().wake_at == ASKED_AT + 2 + AGREEMENT_PATIENCE_S
    table.pass_s(AGREEMENT_PATIENCE_S)
    assert table.look().cancel == ("agreement",)
    table.cancel("agreement")
    record = table.record()
    assert (record["synthesis"]["method"], record["agreement"]["measured"]) == ("list", False)


def test_a_pair_that_cannot_be_compared_in_time_brings_the_others() -> None:
    of = council("A", "B", "C", quick=Quick(members=("A", "B")))
    table = Table(of, question(of, mode=Mode.QUICK))
    table.look()
    table.say("A", "It scatters.\nCONFIDENCE: 90")
    table.say("B", "It scatters.\nCONFIDENCE: 90")
    assert table.names() == ["agreement/quick"]
    assert table.look().wake_at == ASKED_AT + AGREEMENT_PATIENCE_S
    table.pass_s(AGREEMENT_PATIENCE_S)
    assert (table.look().cancel, table.look().ask) == (("agreement/quick",), ())
    table.cancel("agreement/quick")
    assert table.names() == ["member/C"]
    table.pass_s(1)
    table.say("C", "It is painted.")
    table.look()
    table.done("agreement", agreed(1))
    table.done("synthesis/SHENRON", chat("All say so."))
    why = table.record()["escalated"]["why"]
    assert why == (
        "the pair's agreement is unknown: measuring it was given up: the answer was there 10 s before"
    )


@pytest.mark.parametrize(
    ("mode", "members", "pair", "query", "expected"),
    [
        (Mode.COUNCIL, ("A", "B"), (), "Why?", True),
        (Mode.THOROUGH, ("A", "B", "C"), (), "Why?", True),
        (Mode.COUNCIL, ("A",), (), "Why?", False),
        (Mode.QUICK, ("A", "B", "C"), (), "Why?", False),
        (Mode.QUICK, ("A", "B", "C"), ("A", "B"), "Why?", True),
        (Mode.QUICK, ("B", "C"), ("A", "B"), "Why?", False),
        (Mode.QUICK, ("A", "B", "C"), (), "Why is the dose so?", True),
    ],
)
def test_it_is_known_before_whether_answers_will_be_compared(
    mode: Mode, members: tuple[str, ...], pair: tuple[str, ...], query: str, expected: bool
) -> None:
    of = council("A", "B", "C", quick=Quick(members=pair, risk_words=("dose",)))
    assert expects_comparison(of, question(of, mode=mode, members=members, query=query)) is expected
