"""Where the containers of an agent answer: a small file that anybody reads without a lock.

The standard library alone, and little of it: a warm `agent call` imports this and not much else.

    AGENTS/NAME/endpoints.json      the containers that can be called, written whole under `changing`
    AGENTS/NAME/validated-INSTANCE  when somebody last saw that one answer, as the time of the file
    AGENTS/NAME/use-INSTANCE        callers hold a shared lock on it; who pauses or stops one takes it alone
    AGENTS/NAME/change.lock         held for milliseconds by whoever writes endpoints.json
    AGENTS/NAME/start.lock          held by the one who creates containers (see starting.py)

A file that is missing, empty, torn, of another version or of another config is no endpoint: the containers are
then looked for, or made, under the lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

VERSION = 1
READY, PAUSED, LEAVING = "ready", "paused", "leaving"
TRUST_S = 5.0  # an endpoint that was seen to answer so short a time ago is not asked again
_STATES = (READY, PAUSED, LEAVING)
_MOST_BYTES = 1_000_000
_FILE = "endpoints.json"


class Endpoint(NamedTuple):
    """One container that can be called."""

    instance: str  # ours: unique, also among those that are gone
    container: str  # the engine's id
    fingerprint: str  # of what it was made from
    address: str  # "127.0.0.1:40123", or the path of a Unix socket
    key: str  # callers send it
    proof: str  # what answers must send it
    state: str  # READY; PAUSED: resume it first; LEAVING: nobody else may come
    created_at: float

    @property
    def is_socket(self) -> bool:
        return self.address.startswith("/")

    def __repr__(self) -> str:  # keys and proofs are in no log
        return f"Endpoint({self.instance}, {self.address}, {self.state})"


class EndpointFile:
    """What is known of one agent's containers on this machine."""

    def __init__(self, agents_dir: str, agent: str) -> None:
        self.folder = os.path.join(agents_dir, agent)
        self.path = os.path.join(self.folder, _FILE)

    # ---- reading: no lock, and no error

    def read(self, fingerprint: str | None = None) -> list[Endpoint]:
        """Those of that fingerprint, or all; nothing where the file is not as it should be."""
        try:
            with open(self.path, "rb") as file:
                data = file.read(_MOST_BYTES + 1)
        except OSError:
            return []
        return [one for one in _parsed(data) if fingerprint is None or one.fingerprint == fingerprint]

    def validated_s_ago(self, endpoint: Endpoint) -> float:
        try:
            seen = os.stat(self._of("validated", endpoint.instance)).st_mtime
        except OSError:
            return float("inf")
        ago = time.time() - seen
        return ago if ago >= 0 else float("inf")  # a clock that was set back proves nothing

    # ---- writing

    def create(self) -> None:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)

    def validated(self, endpoint: Endpoint) -> None:
        """It was just seen to answer."""
        path = self._of("validated", endpoint.instance)
        with suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            os.utime(path)

    def doubted(self, endpoint: Endpoint) -> None:
        """It did not answer as it should: the next caller asks before it trusts."""
        with suppress(OSError):
            os.unlink(self._of("validated", endpoint.instance))

    @contextmanager
    def changing(self) -> Iterator[list[Endpoint]]:
        """All endpoints, to be changed in place; they are saved at the end, whole or not at all."""
        self.create()
        lock = os.open(os.path.join(self.folder, "change.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = self.read()
            after = list(before)
            yield after
            if after != before or not os.path.exists(self.path):
                self._write(after)
                self._forget({one.instance for one in before} - {one.instance for one in after})
        finally:
            os.close(lock)

    def _write(self, endpoints: Sequence[Endpoint]) -> None:
        document = {"version": VERSION, "endpoints": [one._asdict() for one in endpoints]}
        draft = f"{self.path}.{os.getpid()}"
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, json.dumps(document).encode())
        finally:
            os.close(file)
        os.replace(draft, self.path)

    def _forget(self, instances: set[str]) -> None:
        for instance in instances:
            for what in ("validated", "use"):
                with suppress(OSError):
                    os.unlink(self._of(what, instance))

    # ---- use: whoever calls holds it, so that nobody pauses or stops what is called

    @contextmanager
    def using(self, endpoint: Endpoint) -> Iterator[Endpoint | None]:
        """Held during a call; gives the endpoint as it is from then on, for it may have been paused meanwhile.

        None: it is gone, or somebody is pausing or stopping it just now; read the file again.
        """
        with self._held(endpoint, fcntl.LOCK_SH) as held:
            yield (
                next((one for one in self.read() if one.instance == endpoint.instance), None)
                if held
                else None
            )

    @contextmanager
    def alone(self, endpoint: Endpoint) -> Iterator[bool]:
        """Held while it is paused or stopped. False: it is in use."""
        with self._held(endpoint, fcntl.LOCK_EX) as held:
            yield held

    @contextmanager
    def _held(self, endpoint: Endpoint, how: int) -> Iterator[bool]:
        path = self._of("use", endpoint.instance)
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            yield False
            return
        try:
            try:
                fcntl.flock(lock, how | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            # Whoever removed the file meanwhile has ended the instance.
            yield _is_still(lock, path)
        finally:
            os.close(lock)

    def _of(self, what: str, instance: str) -> str:
        return os.path.join(self.folder, f"{what}-{instance}")


def _is_still(lock: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path))
    except OSError:
        return False


def _parsed(data: bytes) -> list[Endpoint]:
    try:
        document = json.loads(data) if len(data) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        return []
    if not isinstance(document, dict) or document.get("version") != VERSION:
        return []
    given = document.get("endpoints")
    found = [_endpoint(one) for one in given] if isinstance(given, list) else []
    return [one for one in found if one is not None]


def _endpoint(given: Any) -> Endpoint | None:
    if not isinstance(given, dict) or set(given) != set(Endpoint._fields):
        return None
    created_at = given["created_at"]
    texts = [given[name] for name in Endpoint._fields if name != "created_at"]
    if not all(isinstance(text, str) and text for text in texts) or not isinstance(created_at, int | float):
        return None
    if given["state"] not in _STATES or not given["instance"].isalnum():
        return None
    return Endpoint(**given)
