"""What the driver of a Ray cluster answers when Ray fails it: Ray's functions are stand-ins here."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import ray
import ray.util
from ray._private import state
from ray.exceptions import ActorDiedError

from penstock.engine.cluster.driver import Session
from penstock.engine.cluster.frames import AWAY, GONE, Answer, Ask, Frames

PATIENCE_S = 30.0
NAME = "names/tools/one"


class Handle:
    """Of a worker that does not answer, as `error` says."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.hello = self.remote = self
        self._actor_id = b"id"

    def __call__(self, stamp: bytes) -> Handle:
        return self

    def _on_completed(self, then: Callable[[Any], None]) -> None:
        then(self._error)


class Head:
    """What the head of the cluster says."""

    def __init__(self) -> None:
        self.is_heard = True
        self.names = [NAME]
        self.state = "ALIVE"
        self.handle: Handle | None = Handle(ActorDiedError())

    def get_actor(self, name: str, namespace: str) -> Handle:
        if self.handle is None:
            raise ValueError(f"Failed to look up actor with name '{name}'.")
        return self.handle

    def list(self, all_namespaces: bool) -> list[dict[str, str]]:
        if not self.is_heard:
            raise RuntimeError("no head")
        return [{"name": name, "namespace": "ours"} for name in self.names]

    def actors(self, number: str) -> dict[str, str]:
        if not self.is_heard:
            raise RuntimeError("no head")
        return {"State": self.state}


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Head:
    head = Head()
    monkeypatch.setattr(ray, "get_actor", head.get_actor)
    monkeypatch.setattr(ray.util, "list_named_actors", head.list)
    monkeypatch.setattr(state, "actors", head.actors)
    return head


class Asked:
    def __init__(self) -> None:
        self._ours, its = socket.socketpair()
        self._ours.settimeout(PATIENCE_S)
        self.session = Session(its)
        self.session._namespace = "ours"
        self._its = its

    def answer(self, verb: str) -> str:
        """The fault it answers with."""
        self.session._verbs[verb](Ask(number=1, verb=verb, worker=NAME), b"")
        frames = Frames()
        while True:
            for head, _ in frames.feed(self._ours.recv(65_536)):
                return msgspec.json.decode(head, type=Answer).fault

    def close(self) -> None:
        self.session._errands.shutdown()
        self._ours.close()
        self._its.close()


@pytest.fixture
def asked() -> Iterator[Asked]:
    asked = Asked()
    yield asked
    asked.close()


@pytest.mark.parametrize("verb", ["find", "meet"])
def test_a_worker_is_gone_only_when_the_head_of_the_cluster_says_so(
    head: Head, asked: Asked, verb: str
) -> None:
    """A call that failed, and a name that was not found, say nothing: both do so without a head, too."""
    for handle in (head.handle, None):
        head.handle = handle
        head.is_heard = False
        assert asked.answer(verb) == AWAY
        head.is_heard = True
        assert asked.answer(verb) == AWAY, "it lives"
        head.names = []
        assert asked.answer(verb) == GONE
        assert asked.session._handles == {}, "nothing is kept of one that is dead"
        head.names = [NAME]
    head.handle = Handle(ActorDiedError())
    head.state = "DEAD"
    assert asked.answer(verb) == GONE


def test_who_was_to_be_killed_is_gone_only_when_the_head_says_so(
    head: Head, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    head.handle = None
    head.is_heard = False
    monkeypatch.setattr("penstock.engine.cluster.fence.latest", lambda names: 0)
    assert asked.answer("kill") == AWAY
    head.is_heard = True
    assert asked.answer("kill") == AWAY
    head.names = []
    assert asked.answer("kill") == GONE
