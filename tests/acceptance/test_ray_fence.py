"""A dispatcher that was paused while another took over wakes up: on the cluster it can change nothing any more."""

from __future__ import annotations

from penstock.model import Verdict
from tests.conformance.engine_rig import Rig, on_ray, python_host
from tests.conformance.host_phone import Phone


async def test_a_deposed_dispatcher_changes_nothing_on_the_cluster() -> None:
    """It starts nothing, stops nothing, and ends no worker of its successor, though it tries all of that."""
    host, make = python_host("function", "on_loop", 8), on_ray(per_worker=2)
    async with Phone() as phone:

        def meet(name: str) -> dict[str, object]:
            return {"act": "meet", "port": phone.port, "name": name}

        deposed = Rig(host, make=make)
        await deposed.engine.open(1)
        for name in ("a", "b", "gone"):
            deposed.start("function", meet(name), name)
        (await phone.caller("gone")).say("it leaves room in a worker that stays")
        await deposed.outcome("gone")
        await phone.callers(3)
        async with Rig(host, make=make, tag=deposed.tag, term=2) as leader:
            leader.started = [job for job in deposed.started if job.task != "gone"]
            assert await leader.engine.adopt(leader.started) == {("a", 1), ("b", 1)}
            for number in range(6):  # for workers that are there, and for new ones
                deposed.start("function", meet("late"), f"late{number}")
            deposed.engine.stop("a", 1)
            leader.start("function", meet("c"), "c")
            await phone.caller("c")
            await deposed.engine.close()
            for name in ("a", "b", "c"):
                (await phone.caller(name)).say(f"well, {name}")
                outcome = await leader.outcome(name)
                assert (outcome.verdict, outcome.value) == (Verdict.DONE, f"well, {name}")
            assert sorted(caller.name for caller in await phone.callers(4)) == ["a", "b", "c", "gone"]
        assert Verdict.DONE not in {
            outcomes[0].verdict for key, outcomes in deposed.reports.items() if key[0] != "gone"
        }


async def test_a_store_that_came_back_from_a_backup_is_told_what_to_do() -> None:
    """Its terms begin below those that the cluster has seen: under another name they are the first."""
    host = python_host("function", "sync", 1)
    async with Rig(host, make=on_ray(), term=7) as lost:
        assert (await lost.engine.check("function")).up
    async with Rig(host, make=on_ray(), tag=lost.tag, term=5) as restored:
        health = await restored.engine.check("function")
        assert not health.up
        assert "give engine.namespace another name" in health.detail
    async with Rig(host, make=on_ray(namespace="restored"), tag=lost.tag, term=5) as renamed:
        assert (await renamed.outcome_of("function", {"act": "return", "value": 1})).value == 1
