"""Trying every host for the set-up page: told one by one, once for all who look (E7)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from penstock.config import Config, parse
from penstock.errors import ConfigError
from penstock.setup.checkup import Finding
from penstock.web.board import checkups
from penstock.web.board.checkups import Checkup

PATIENCE_S = 30.0
CONFIG = '[hosts.first]\ntype = "simulated"\n[hosts.second]\ntype = "simulated"\n'


class Tried:
    """A look that goes on only when it is let."""

    def __init__(self) -> None:
        self.looks = 0
        self.may_end = threading.Event()

    async def examine(
        self, config: Config, time_limit_s: float, told: Callable[[Finding], None]
    ) -> list[Finding]:
        self.looks += 1
        first = Finding("host", "first", "well", "there")
        told(first)
        await asyncio.to_thread(self.may_end.wait, PATIENCE_S)
        return [first, Finding("host", "second", "wrong", "gone"), Finding("store", "x.db", "well", "")]


async def test_a_host_is_told_of_while_others_are_still_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = Tried()
    monkeypatch.setattr(checkups, "examine", tried.examine)
    checkup = Checkup(parse(CONFIG))
    changed = asyncio.Event()
    checkup.watch(changed.set)
    async with asyncio.TaskGroup() as group, asyncio.timeout(PATIENCE_S):
        looks = [group.create_task(checkup.look()) for _ in range(3)]
        while "first" not in checkup.hosts:
            await changed.wait()
            changed.clear()
        assert checkup.goes_on
        assert "second" not in checkup.hosts
        tried.may_end.set()
    assert all(look.done() for look in looks)
    assert tried.looks == 1, "whoever comes while it goes on shares it"
    assert not checkup.goes_on
    assert checkup.is_fresh
    assert {name: one.state for name, one in checkup.hosts.items()} == {"first": "well", "second": "wrong"}
    assert [one.what for one in checkup.others] == ["store"]


async def test_a_look_that_blocks_is_given_up_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps its thread, so another begins only when that one is over."""
    tried = Tried()
    monkeypatch.setattr(checkups, "examine", tried.examine)
    monkeypatch.setattr(checkups, "GIVEN_UP_S", 0.2)
    checkup = Checkup(parse(CONFIG))
    async with asyncio.timeout(PATIENCE_S):
        await checkup.look()
        assert not checkup.goes_on
        assert checkup.trouble.endswith("blocks: second")
        await checkup.look()
        assert (tried.looks, "restart serve" in checkup.trouble) == (1, True)
        tried.may_end.set()
        assert checkup._work is not None
        await checkup._work
        await checkup.look()
    assert (tried.looks, checkup.trouble) == (2, "")


async def test_what_keeps_it_from_being_done_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*of: object) -> list[Finding]:
        raise ConfigError("hosts.first: no such option")

    monkeypatch.setattr(checkups, "examine", refuse)
    checkup = Checkup(parse(CONFIG))
    await checkup.look()
    assert checkup.trouble == "hosts.first: no such option"
    assert not checkup.goes_on


async def test_who_has_left_is_told_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = Tried()
    tried.may_end.set()
    monkeypatch.setattr(checkups, "examine", tried.examine)
    checkup = Checkup(parse(CONFIG))
    heard: list[int] = []
    leave = checkup.watch(lambda: heard.append(1))
    leave()
    await checkup.look()
    assert not heard
