"""C8: one thread per kind. Attempts of a kind never overlap, those of others do."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator

import pytest

from penstock.model import Host, Outcome, Verdict
from tests.conformance.engine_rig import Rig, our_threads, python_host, threaded_engine
from tests.conformance.host_phone import Phone


@pytest.fixture
async def phone() -> AsyncIterator[Phone]:
    async with Phone() as phone:
        yield phone


def kind_threads() -> list[str]:
    return sorted(one.name for one in threading.enumerate() if one.name.startswith("penstock kind "))


async def test_c8_a_kind_runs_one_at_a_time_whatever_its_host_has_free(phone: Phone) -> None:
    async with Rig(python_host("host", "on_loop", 8), make=threaded_engine) as rig:
        for name in ("first", "second"):
            rig.start("host", {"act": "meet", "port": phone.port, "name": name}, name, kind="coding")
        rig.start("host", {"act": "meet", "port": phone.port, "name": "other"}, "other", kind="general")
        first, other = await phone.caller("first"), await phone.caller("other")
        assert kind_threads() == ["penstock kind coding", "penstock kind general"]
        other.say("go")
        assert (await rig.outcome("other")).verdict is Verdict.DONE
        assert (
            len(await phone.callers(2)) == 2
        )  # the second has not begun: the thread of its kind waits for the first
        first.say("go")
        second = await phone.caller("second")
        assert list(rig.reports) == [("other", 1), ("first", 1)]
        second.say("go")
        await rig.all_reported()
    assert our_threads() == []


async def test_c8_what_is_stopped_in_line_never_begins(phone: Phone) -> None:
    async with Rig(python_host("host", "on_loop", 8), make=threaded_engine) as rig:
        rig.start("host", {"act": "meet", "port": phone.port, "name": "long"}, "long", kind="coding")
        rig.start("host", {"act": "meet", "port": phone.port, "name": "next"}, "next", kind="coding")
        caller = await phone.caller("long")
        rig.engine.stop("next", 1)
        caller.say("go")
        assert (await rig.outcome("next")).verdict is Verdict.CANCELLED
        assert (await rig.outcome("long")).verdict is Verdict.DONE
        assert len(await phone.callers(1)) == 1


async def test_c8_closing_ends_what_runs_and_what_is_in_line(phone: Phone) -> None:
    async with Rig(python_host("host", "on_loop", 8), make=threaded_engine) as rig:
        for name in ("a", "b", "c"):
            rig.start("host", {"act": "meet", "port": phone.port, "name": name}, name, kind="coding")
        await phone.caller("a")
    assert {task: outcomes[0].verdict for (task, _), outcomes in rig.reports.items()} == dict.fromkeys(
        "abc", Verdict.CANCELLED
    )
    assert len(await phone.callers(1)) == 1
    assert our_threads() == []


async def test_a_payload_that_its_host_refuses_frees_the_thread() -> None:
    async with Rig(Host("host", "simulated", 4), make=threaded_engine) as rig:
        rig.start("host", {"duration_s": "long"}, "wrong", kind="k")
        rig.start("host", {"duration_s": 0}, "right", kind="k")
        outcomes: list[Outcome] = [await rig.outcome("wrong"), await rig.outcome("right")]
    assert [outcome.verdict for outcome in outcomes] == [Verdict.PERMANENT, Verdict.DONE]


async def test_c8_calls_of_the_front_door_go_past_the_threads(phone: Phone) -> None:
    """A task that holds a thread may wait for calls of its own: they must not wait for each other."""
    async with Rig(python_host("host", "on_loop", 8), make=threaded_engine) as rig:
        for name in ("first", "second"):
            rig.start("host", {"act": "meet", "port": phone.port, "name": name}, name, kind="call/chat")
        callers = await phone.callers(2)
        assert kind_threads() == []
        callers[0].say("go")
        rig.engine.stop("second" if callers[0].name == "first" else "first", 1)
        await rig.all_reported()
    verdicts = sorted(str(outcomes[0].verdict) for outcomes in rig.reports.values())
    assert verdicts == ["cancelled", "done"]
