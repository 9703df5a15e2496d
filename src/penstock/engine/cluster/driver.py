"""The process that speaks with Ray, a child of the dispatcher: it does as it is asked, and decides nothing.

    python -m penstock.engine.cluster.driver DESCRIPTOR

Ray ends a process whose cluster is lost for a minute, and a call of its library may hang as long: neither must
happen to a dispatcher. The descriptor is one end of a socket; when the other end closes, this process ends.
Workers are detached, so its end is nothing to them.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec

from penstock.engine.cluster import fence
from penstock.engine.cluster.driver_letters import Joined, Joining, Node
from penstock.engine.cluster.frames import (
    AWAY,
    CUT,
    GONE,
    READ_BYTES,
    REFUSED,
    Answer,
    Ask,
    Frames,
    frame,
)
from penstock.engine.cluster.worker import Worker

_CONTROL = 8  # calls beside the attempts that a worker answers at a time
_ERRANDS = 8  # threads for what waits for the cluster's head
_ERROR_CHARS = 500
_DEAD = "DEAD"
_UNBEGUN = ("DEPENDENCIES_UNREADY", "PENDING_CREATION")
_LATER = (
    "it obeys a later dispatcher of this store; if the store came back from a backup, "
    "give engine.namespace another name"
)
_ANOTHERS = "another dispatcher took over"

_asks = msgspec.json.Decoder(Ask)


class Session:
    """One dispatcher's requests, until its end of the line closes."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._namespace = ""
        self._names = ""
        self._term = 0
        self._handles: dict[str, Any] = {}
        self._errands = ThreadPoolExecutor(_ERRANDS, thread_name_prefix="errand")
        self._writing = threading.Lock()
        self._verbs: dict[str, Callable[[Ask, bytes], None]] = {
            "join": self._off_hand(self._join),
            "hire": self._off_hand(self._hire),
            "find": self._off_hand(self._find),
            "meet": self._off_hand(self._meet),
            "kill": self._off_hand(self._kill),
            "list": self._off_hand(self._list),
            "nodes": self._off_hand(self._nodes),
            "call": self._call,
        }

    def serve(self) -> None:
        frames = Frames()
        room = memoryview(bytearray(READ_BYTES))
        while True:
            try:
                size = self._line.recv_into(room)
            except OSError:
                size = 0
            if not size:
                break
            for head, body in frames.feed(room[:size]):
                ask = _asks.decode(head)
                self._verbs[ask.verb](ask, body)
        self._errands.shutdown(wait=False, cancel_futures=True)

    def _answer(self, number: int, body: bytes = b"", fault: str = "", error: str = "") -> None:
        said = frame(Answer(number=number, fault=fault, error=error[:_ERROR_CHARS]), body)
        with self._writing:
            try:
                self._line.sendall(said)
            except OSError:
                return  # nobody listens any more, which the reader notices

    def _off_hand(self, errand: Callable[[Ask, bytes], None]) -> Callable[[Ask, bytes], None]:
        """It may wait for the cluster: in a thread, so that calls go on meanwhile."""

        def run(ask: Ask, body: bytes) -> None:
            try:
                errand(ask, body)
            except Exception as error:  # noqa: BLE001 - Ray raises anything: whoever asked is told
                self._answer(ask.number, fault=fault_of(error), error=reason_of(error))

        def send(ask: Ask, body: bytes) -> None:
            self._errands.submit(run, ask, body)

        return send

    # ---- what is asked

    def _join(self, ask: Ask, body: bytes) -> None:
        joining = msgspec.json.decode(body, type=Joining)
        self._namespace = joining.namespace
        joined = join(joining)
        self._names, self._term = f"{joining.namespace}/{joining.names}", joining.term
        # One that only looks around has no names, and its coming is nothing to the workers.
        if joining.names and not fence.proclaim(self._names, self._term):
            self._answer(ask.number, fault=REFUSED, error=_LATER)
            return
        self._answer(ask.number, msgspec.json.encode(joined))

    def _hire(self, ask: Ask, body: bytes) -> None:
        import ray

        options = {name: msgspec.json.decode(value) for name, value in ask.options.items()}
        handle: Any = (
            ray.remote(Worker)
            .options(
                name=ask.worker,
                namespace=self._namespace,
                lifetime="detached",
                max_restarts=0,  # attempts are the dispatcher's to repeat, and so are workers
                max_task_retries=0,
                enable_task_events=False,  # what becomes of attempts is ours to tell, and each call is cheaper
                max_concurrency=ask.capacity + _CONTROL,
                **options,
            )
            .remote(body, self._names, self._term)
        )
        self._handles[ask.worker] = handle
        self._send(ask.number, handle.hello.remote(fence.stamp(self._term)))

    def _find(self, ask: Ask, body: bytes) -> None:
        import ray

        try:
            handle = ray.get_actor(ask.worker, namespace=self._namespace)
            self._handles[ask.worker] = handle
            ref: Any = handle.hello.remote(fence.stamp(self._term))
        except Exception as error:  # noqa: BLE001 - Ray raises anything: whoever asked is told
            self._not_found(ask, error)
            return
        # In a thread of ours: Ray's must not wait for the cluster's head.
        self._send(ask.number, ref, lambda error: self._errands.submit(self._not_found, ask, error))

    def _meet(self, ask: Ask, body: bytes) -> None:
        """As `find`, of one that an earlier dispatcher hired. If it has not begun it has nothing, and is ended."""
        import ray

        try:
            handle = ray.get_actor(ask.worker, namespace=self._namespace)
        except ValueError as error:
            self._not_found(ask, error)
            return
        if _state(handle) not in _UNBEGUN:
            self._find(ask, body)
        else:
            self._kill(Ask(number=0, verb="kill", worker=ask.worker), b"")
            self._answer(ask.number, fault=GONE, error="it had not begun")

    def _not_found(self, ask: Ask, error: BaseException) -> None:
        """Dead is whom the cluster's head says to be. While that cannot be asked Ray says so of everybody: a look
        for a name that failed, and a call that failed, both end like those of the dead."""
        fault = fault_of(error)
        if fault == GONE:
            try:
                fault = GONE if self._is_dead(ask.worker) else AWAY
            except Exception:  # noqa: BLE001 - Ray raises anything: the head was not heard
                fault = AWAY
        if fault == GONE:
            self._handles.pop(ask.worker, None)
        self._answer(ask.number, fault=fault, error=reason_of(error))

    def _is_dead(self, worker: str) -> bool:
        handle = self._handles.get(worker)
        return worker not in self._named() or (handle is not None and _state(handle) == _DEAD)

    def _call(self, ask: Ask, body: bytes) -> None:
        handle = self._handles.get(ask.worker)
        if handle is None:
            self._answer(ask.number, fault=GONE, error="there is no such worker")
            return
        method = getattr(handle, ask.method)
        try:
            ref = method.remote(fence.stamp(self._term) + body)
        except Exception as error:  # noqa: BLE001 - Ray raises anything: whoever asked is told
            self._answer(ask.number, fault=fault_of(error), error=reason_of(error))
            return
        self._send(ask.number, ref)

    def _kill(self, ask: Ask, body: bytes) -> None:
        import ray

        if fence.latest(self._names) > self._term:
            self._answer(ask.number, fault=CUT, error=_ANOTHERS)
            return
        handle = self._handles.pop(ask.worker, None)
        if handle is None:
            try:
                handle = ray.get_actor(ask.worker, namespace=self._namespace)
            except ValueError as error:
                self._not_found(ask, error)
                return
        ray.kill(handle, no_restart=True)
        self._answer(ask.number)

    def _list(self, ask: Ask, body: bytes) -> None:
        names = [name for name in self._named() if name.startswith(ask.worker)]
        self._answer(ask.number, msgspec.json.encode(names))

    def _named(self) -> list[str]:
        """All that live, of the cluster's head: it raises when that cannot be asked."""
        from ray.util import list_named_actors

        named = list_named_actors(all_namespaces=True)
        return [found["name"] for found in named if found["namespace"] == self._namespace]

    def _nodes(self, ask: Ask, body: bytes) -> None:
        import ray

        nodes = [
            Node(
                node_id=node["NodeID"],
                name=node.get("NodeManagerHostname", ""),
                resources=node.get("Resources", {}),
                labels=node.get("Labels", {}),
            )
            for node in ray.nodes()  # type: ignore[no-untyped-call]
            if node["Alive"]
        ]
        self._answer(ask.number, msgspec.json.encode(nodes))

    def _send(self, number: int, ref: Any, failed: Callable[[BaseException], object] | None = None) -> None:
        # What `ref.future()` does, without a future: that would be a tenth of an attempt's time. The ref is needed
        # until then.
        ref._on_completed(partial(self._arrived, number, ref, failed))

    def _arrived(
        self, number: int, ref: Any, failed: Callable[[BaseException], object] | None, said: Any
    ) -> None:
        """In a thread of Ray's."""
        if isinstance(said, BaseException) and failed is not None:
            failed(said)
        elif isinstance(said, BaseException):
            self._answer(number, fault=fault_of(said), error=reason_of(said))
        elif said is None:
            self._answer(number, fault=CUT, error=_ANOTHERS)
        else:
            self._answer(number, said)


def join(joining: Joining) -> Joined:
    """Become a driver of the cluster. What the workers are to be given is uploaded now."""
    import ray

    if not ray.is_initialized():
        ray.init(
            address=joining.address,
            namespace=joining.namespace,
            runtime_env=joining.runtime_env or None,
            log_to_driver=False,
            configure_logging=False,
        )
    uploaded = ray.get_runtime_context().runtime_env
    return Joined(version=ray.__version__, runtime_env=msgspec.json.decode(uploaded.serialize()))


def _state(handle: Any) -> str:
    """As the cluster's head has it; nothing where it is not for everybody to ask."""
    from ray._private import state

    try:
        return str(state.actors(handle._actor_id.hex()).get("State", ""))
    except Exception:  # noqa: BLE001 - Ray raises anything: then the worker is asked itself, which takes longer
        return ""


def fault_of(error: BaseException) -> str:
    from ray import exceptions

    if isinstance(error, exceptions.ActorUnavailableError):
        return AWAY
    if isinstance(error, exceptions.RuntimeEnvSetupError | exceptions.ActorUnschedulableError):
        return REFUSED
    if isinstance(error, exceptions.RayActorError):
        return REFUSED if "creation task" in str(error) else GONE
    if isinstance(error, exceptions.ObjectLostError | exceptions.NodeDiedError):
        return GONE
    if isinstance(error, ValueError):  # Ray's word for a name nobody has
        return GONE
    if isinstance(error, exceptions.RayTaskError):
        return REFUSED
    return AWAY


def reason_of(error: BaseException) -> str:
    """In one line, for people: Ray's own messages fill a screen."""
    text = str(error)
    if "creation task" in text:  # the last line is what was raised on the node
        return " ".join(text.strip().splitlines()[-1].split())
    for sign, said in _SIGNS:
        if sign in text:
            return said
    return " ".join(f"{type(error).__name__}: {text}".split())


_SIGNS = (
    (
        "Could not find any running Ray instance",
        "no Ray runs on this machine; start it, or set engine.address",
    ),
    ("Failed to look up actor", "the cluster knows it no longer"),
    ("node has died", "its node died"),
    ("node was terminated", "its node died"),
    ("running low on memory", "its node ran out of memory"),
    ("ray.kill", "it was killed"),
    ("worker process has died", "its process died"),
    ("The actor died", "its process died"),
)


def _load() -> None:
    """To import Ray takes seconds: the driver of a dispatcher that stands by has done so when it is to join."""
    import ray  # noqa: F401


def main() -> None:
    threading.Thread(target=_load, name="load", daemon=True).start()
    line = socket.socket(fileno=int(sys.argv[1]))
    Session(line).serve()
    os._exit(0)  # Ray's own ways of ending take seconds, and the workers are not its business


if __name__ == "__main__":
    main()
