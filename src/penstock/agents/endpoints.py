"""Where the containers of an agent answer: a small file that anybody reads without a lock.

The standard library alone, and little of it: a warm `agent call` imports this and not much else.

    AGENTS/NAME/endpoints.json      the containers that can be called, written whole under `changing`
    AGENTS/NAME/validated-INSTANCE  when somebody last saw that one answer, as the time of the file; as the other
                                    time, that of access, when it was last looked at with its container and image
    AGENTS/NAME/use-INSTANCE        callers hold a shared lock on it; who pauses or stops one takes it alone
    AGENTS/NAME/change.lock         held for milliseconds by whoever writes endpoints.json
    AGENTS/NAME/start.lock          held by the one who creates containers (see starting.py)

A file that is missing, empty, torn, of another version or of another config is no endpoint: the containers are
then looked for, or made, under the lock. Instances are never named twice, so what is said of one that is gone can
be forgotten at any time.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from penstock.errors import AgentBusy, AgentError, NoRoomForAgent

VERSION = 1
READY, PAUSED, LEAVING = "ready", "paused", "leaving"
TRUST_S = 5.0  # an endpoint that was seen to answer so short a time ago is not asked again
# Answers alone make up for no look at it for longer: its image or its age may say that it must go.
LOOK_S = 25.0
_STATES = (READY, PAUSED, LEAVING)
_MOST_BYTES = 1_000_000
_FILE = "endpoints.json"
_OF_INSTANCES = ("validated", "use")
_CHANGE_S = 10.0  # `change.lock` is held for milliseconds: who waits longer waits for a stopped process
_BETWEEN_TRIES_S = 0.005
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM})


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
        return [one for one in self._known() or () if fingerprint is None or one.fingerprint == fingerprint]

    def find(self, instance: str) -> Endpoint | None:
        return next((one for one in self.read() if one.instance == instance), None)

    def validated_s_ago(self, endpoint: Endpoint) -> float:
        try:
            seen = os.stat(self._of("validated", endpoint.instance)).st_mtime
        except OSError:
            return float("inf")
        ago = time.time() - seen
        return ago if ago >= 0 else float("inf")  # a clock that was set back proves nothing

    def _known(self) -> list[Endpoint] | None:
        """None: nothing can be told of what is there."""
        try:
            with open(self.path, "rb") as file:
                return _parsed(file.read(_MOST_BYTES + 1))
        except OSError:
            return None

    # ---- writing

    def create(self) -> None:
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise unwritable(self.folder, error) from None

    def validated(self, endpoint: Endpoint) -> None:
        """It was just looked at, and is as it should be."""
        path = self._of("validated", endpoint.instance)
        with suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            os.utime(path)

    def answered(self, endpoint: Endpoint) -> None:
        """It has answered a call, so that it need not be asked, unless it is time to look at it again."""
        path, now = self._of("validated", endpoint.instance), time.time()
        with suppress(OSError):
            known = os.stat(path)
            if now - known.st_mtime > TRUST_S / 2 and 0 <= now - known.st_atime < LOOK_S:
                os.utime(path, (known.st_atime, now))

    def doubted(self, endpoint: Endpoint) -> None:
        """It did not answer as it should: the next caller asks before it trusts."""
        with suppress(OSError):
            os.unlink(self._of("validated", endpoint.instance))

    def mark(self, instance: str, state: str) -> bool:
        """False: it is not known any more, or it is leaving, which nothing undoes."""
        return self.replace(instance, state=state)

    def replace(self, instance: str, **fields: Any) -> bool:
        """As `mark`, for whatever is known of it."""
        with self.changing() as endpoints:
            for place, one in enumerate(endpoints):
                if one.instance == instance and one.state != LEAVING:
                    endpoints[place] = one._replace(**fields)
                    return True
        return False

    def drop(self, instance: str) -> None:
        """Forget it: its container is gone."""
        if self.find(instance) is not None:
            with self.changing() as endpoints:
                endpoints[:] = [one for one in endpoints if one.instance != instance]

    def forget_others(self, instances: set[str]) -> None:
        """Leave nothing of instances that are neither known nor among these: for the holder of the start lock."""
        known = self._known()
        if known is None:
            return
        kept = instances | {one.instance for one in known}
        with suppress(OSError):
            for name in os.listdir(self.folder):
                what, _, instance = name.partition("-")
                if what in _OF_INSTANCES and instance not in kept:
                    self._forget({instance})

    @contextmanager
    def changing(self) -> Iterator[list[Endpoint]]:
        """All endpoints, to be changed in place; they are saved at the end, whole or not at all."""
        lock = self._change_lock()
        try:
            known = self._known()
            before = known or []
            after = list(before)
            yield after
            if known is None or after != before:
                self._write(after)
                self._forget({one.instance for one in before} - {one.instance for one in after})
        finally:
            os.close(lock)

    def _change_lock(self) -> int:
        path = os.path.join(self.folder, "change.lock")
        until = time.monotonic() + _CHANGE_S
        while True:
            self.create()
            try:
                lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # the agent was just removed
            except OSError as error:
                raise unwritable(self.folder, error) from None
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_still(lock, path):
                    return lock
            except BlockingIOError:
                pass
            except OSError as error:
                os.close(lock)
                raise unwritable(self.folder, error) from None
            os.close(lock)
            if time.monotonic() >= until:
                raise AgentBusy(
                    f"{path}: a process has held it for over {_CHANGE_S:.0f} s, so it must be stopped;"
                    " find it with `fuser`, and end it or let it go on"
                )
            time.sleep(_BETWEEN_TRIES_S)

    def _write(self, endpoints: Sequence[Endpoint]) -> None:
        document = {"version": VERSION, "endpoints": [one._asdict() for one in endpoints]}
        write_whole(self.path, json.dumps(document).encode())

    def _forget(self, instances: set[str]) -> None:
        for instance in instances:
            for what in _OF_INSTANCES:
                with suppress(OSError):
                    os.unlink(self._of(what, instance))

    # ---- use: whoever calls holds it, so that nobody pauses or stops what is called

    @contextmanager
    def using(self, endpoint: Endpoint) -> Iterator[Endpoint | None]:
        """Held during a call; gives the endpoint as it is from then on, for it may have been paused meanwhile.

        None: it is gone, or somebody is pausing or stopping it just now; read the file again.
        """
        with self._held(endpoint.instance, fcntl.LOCK_SH) as held:
            yield self._still_known(endpoint.instance) if held else None

    @contextmanager
    def alone(self, endpoint: Endpoint) -> Iterator[bool]:
        """Held while it is paused or stopped. False: it is in use."""
        with self.alone_with(endpoint.instance) as held:
            yield held

    @contextmanager
    def alone_with(self, instance: str) -> Iterator[bool]:
        """As `alone`, also for an instance that nothing is known of."""
        with self._held(instance, fcntl.LOCK_EX) as held:
            try:
                yield held
            finally:
                if held:
                    self._still_known(instance)

    def _still_known(self, instance: str) -> Endpoint | None:
        """A lock of an instance that is gone is left by nobody; a damaged file does not tell what is gone."""
        known = self._known()
        found = next((one for one in known or () if one.instance == instance), None)
        if known is not None and found is None:
            self._forget({instance})
        return found

    @contextmanager
    def _held(self, instance: str, how: int) -> Iterator[bool]:
        path = self._of("use", instance)
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # the folder is gone, and all of its instances
            yield False
            return
        except OSError as error:
            raise unwritable(self.folder, error) from None
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


def must_be_ours(agents_dir: str) -> None:
    """Whoever can write there says where calls go, so nobody else may: it may lie where others make files too."""
    try:
        link, seen = os.lstat(agents_dir), os.stat(agents_dir)
        beside = os.stat(os.path.dirname(agents_dir) or ".")
    except OSError:
        return  # it is made, or its absence is told, by who needs it
    owners = (
        os.geteuid(),
        0,
        beside.st_uid,
    )  # who owns the folder of the store and the config decides as well
    if link.st_uid not in owners or seen.st_uid not in owners:
        raise AgentError(
            f"{agents_dir}: it belongs to another user ({seen.st_uid}), who could say where calls go; remove it"
        )
    if seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        try:
            os.chmod(agents_dir, 0o700)
        except OSError:
            raise AgentError(
                f"{agents_dir}: others may write there, and say where calls go; have its owner `chmod 700` it"
            ) from None


def write_whole(path: str, data: bytes) -> None:
    """All of it or nothing, and no draft is left. Whoever writes a file does so alone: one name for its drafts."""
    draft = f"{path}.draft"
    try:
        try:
            file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(file, rest) :]
            finally:
                os.close(file)
            os.replace(draft, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft)
            raise
    except OSError as error:
        raise unwritable(os.path.dirname(path), error) from None


def unwritable(folder: str, error: OSError) -> AgentError:
    """One line for whatever keeps the state of an agent from being written."""
    if error.errno in _FULL:
        return NoRoomForAgent(
            f"{folder}: nothing can be kept of the agent there ({error.strerror}); make room for it, and call again"
        )
    return AgentError(
        f"{folder}: the state of the agent cannot be written there ({error.strerror});"
        " check that folder, which lies beside the store, and who owns it"
    )


def _is_still(lock: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path))
    except OSError:
        return False


def _parsed(data: bytes) -> list[Endpoint] | None:
    """None: it is damaged, or of another version."""
    try:
        document = json.loads(data) if len(data) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("version") != VERSION:
        return None
    given = document.get("endpoints")
    if not isinstance(given, list):
        return None
    found = {one.instance: one for one in map(_endpoint, given) if one is not None}
    return list(found.values())


def _endpoint(given: Any) -> Endpoint | None:
    if not isinstance(given, dict) or set(given) != set(Endpoint._fields):
        return None
    created_at = given["created_at"]
    texts = [given[name] for name in Endpoint._fields if name != "created_at"]
    if not all(isinstance(text, str) and text.isprintable() and text for text in texts):
        return None
    if type(created_at) not in (int, float) or not math.isfinite(created_at):
        return None
    if given["state"] not in _STATES or not given["instance"].isalnum():
        return None
    found = Endpoint(**given)
    # For names and headers.
    is_fit = found.instance.isascii() and found.key.isascii() and found.proof.isascii()
    return found if is_fit and _is_address(found.address) else None


def _is_address(text: str) -> bool:
    if text.startswith("/"):
        return True
    host, _, port = text.rpartition(":")
    return host != "" and port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536
