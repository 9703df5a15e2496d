"""A worker on a node of the cluster: a detached actor that runs attempts of one host, and keeps their outcomes.

It belongs to a store and not to a dispatcher: whoever knows its name asks what it has, and waits for the ends of
its attempts. One that was deposed it does not obey: the answer is None. An outcome is kept until a dispatcher says
that it is recorded. Ray calls the methods in threads.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue

import msgspec

from penstock.engine.base import Key, Stall
from penstock.engine.cluster import fence, nets
from penstock.engine.cluster.letters import (
    Attempt,
    Blocked,
    Errand,
    Hello,
    Hiring,
    Listening,
    News,
    Over,
    Recorded,
    Standing,
    Stopped,
    Stopping,
    read,
    written,
)
from penstock.engine.cluster.shop import Shop
from penstock.engine.outcomes import failure, stopped, timed_out
from penstock.errors import HostError
from penstock.hosts.attempt_logs import read_on
from penstock.hosts.own_door import Access
from penstock.model import Outcome, Verdict

_PIECE_BYTES = 262_144  # of a log, told at once
_LOOK_S = 0.2
_MOST_KEPT = 1000  # outcomes that somebody was told, and nobody has recorded
_MOST_KEPT_BYTES = 64_000_000
_MOST_UNWANTED = 1000
_FORGOTTEN_S = 86_400.0  # outcomes that nobody has asked for keep a worker for so long
_MOST_STALLS = 100  # that nobody has heard of
_AGE_S = 60.0

_UNWRITABLE = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)  # as JSON
_NO_WAY = (
    "{} calls models through its dispatcher, which nobody reaches from node "
    f"{platform.node()}: run `penstock serve` with `host` and `advertise` of [server], or keep the host off such "
    "nodes with `ray`"
)
_NOBODY = Outcome(Verdict.HOST, error="the worker has no such attempt")
_UNKNOWN = written(Over(outcome=_NOBODY, unknown=True))
_REPLACED = written(Over(outcome=_NOBODY, replaced=True))


@dataclass(slots=True, eq=False)
class _Record:
    """An attempt, from its errand until its end is recorded."""

    over: bytes | None = None
    told: bool = False  # somebody has been given its end
    waiter: SimpleQueue[bytes] | None = None
    since: float = field(default_factory=time.monotonic)
    over_at: float = 0.0


class Worker:
    def __init__(self, hiring: bytes, names: str, term: int) -> None:
        if fence.latest(names) > term:
            raise RuntimeError("another dispatcher took over")
        self._term = term
        self._likeness = likeness(hiring)
        self._hired = read(hiring, Hiring)
        _set(self._hired.variables)  # before anything of the user's is imported, which may read them then
        self._records: dict[Key, _Record] = {}
        self._kept_bytes = 0
        self._unwanted: dict[Key, bool] = {}  # stopped before their errand came; whether for want of time
        self._stalls: deque[Blocked] = deque(maxlen=_MOST_STALLS)
        self._stalled_so_far = 0
        self._news = threading.Condition()
        self._heard = time.monotonic()
        self._closed = False
        self._shop = Shop(self._hired, self._over, self._stalled)
        threading.Thread(target=self._grow_old, name="age", daemon=True).start()

    def hello(self, order: bytes) -> bytes | None:
        if self._obeyed(order) is None:
            return None
        with self._news:
            now = time.monotonic()
            attempts = [
                Standing(*key, record.over is not None, now - record.since, now - (record.over_at or now))
                for key, record in self._records.items()
            ]
        return written(
            Hello(
                likeness=self._likeness,
                node=platform.node(),
                node_id=_node_id(),
                pid=os.getpid(),
                attempts=attempts,
                stalls=self._stalled_so_far,
            )
        )

    def run(self, order: bytes) -> bytes | None:
        """Run an attempt, and answer with its end. The same letter again waits for the same attempt."""
        if (letter := self._obeyed(order)) is None:
            return None
        errand = read(letter, Errand)
        if errand.recorded:
            self._forget(errand.recorded)
        key = (errand.task, errand.attempt)
        with self._news:
            if key in self._records:
                waiter = None
            else:
                waiter = SimpleQueue[bytes]()
                self._records[key] = _Record(waiter=waiter)
                unwanted = self._unwanted.pop(key, None)
                self._shop.expect(key)
        if waiter is None:
            return self._wait(key)
        if unwanted is not None:
            self._refuse(key, timed_out(errand.timeout_s) if unwanted else stopped())
        else:
            self._begin(key, errand)
        return self._told(key, waiter.get())  # an end that is there already is not waited for

    def attach(self, order: bytes) -> bytes | None:
        """Wait for the end of an attempt that somebody else began here."""
        if (letter := self._obeyed(order)) is None:
            return None
        asked = read(letter, Attempt)
        return self._wait((asked.task, asked.attempt))

    def stop(self, order: bytes) -> bytes | None:
        if (letter := self._obeyed(order)) is None:
            return None
        asked = read(letter, Stopping)
        key = (asked.task, asked.attempt)
        with self._news:
            if key not in self._records:
                if len(self._unwanted) >= _MOST_UNWANTED:
                    del self._unwanted[next(iter(self._unwanted))]
                self._unwanted[key] = asked.timed_out
                return written(Stopped(0.0))
        return written(Stopped(self._shop.end(key, timed_out=asked.timed_out)))

    def recorded(self, order: bytes) -> bytes | None:
        if (letter := self._obeyed(order)) is None:
            return None
        self._forget(read(letter, Recorded).ended)
        return b""

    def listen(self, order: bytes) -> bytes | None:
        """Wait for what there is to tell: loops that are blocked, and what attempts say."""
        if (letter := self._obeyed(order)) is None:
            return None
        asked = read(letter, Listening)
        until = time.monotonic() + asked.wait_s
        while True:
            self._heard = time.monotonic()
            with self._news:
                unheard = self._stalled_so_far - asked.stalls
                stalls = list(self._stalls)[-unheard:] if unheard > 0 else []
                news = News(stalls=stalls, stalled=self._stalled_so_far)
            news.logs = self._said(asked.logs)
            left_s = until - time.monotonic()
            if news.stalls or news.logs or left_s <= 0 or self._closed:
                return written(news)
            with self._news:
                if self._stalled_so_far <= asked.stalls:
                    self._news.wait(min(_LOOK_S, left_s) if asked.logs else left_s)

    def close(self, order: bytes) -> bytes | None:
        """End everything here; the answer comes when nothing is left."""
        if self._obeyed(order) is None:
            return None
        return self._close()

    def _obeyed(self, order: bytes) -> bytes | None:
        """What is ordered; None: by one who no longer has a say."""
        term, letter = fence.opened(order)
        with self._news:
            if term < self._term:
                return None
            self._term = term
        self._heard = time.monotonic()
        return letter

    def _close(self) -> bytes:
        with self._news:
            was_closed, self._closed = self._closed, True
            self._news.notify_all()
        if not was_closed:
            self._shop.close()
        return b""

    # ---- attempts

    def _begin(self, key: Key, errand: Errand) -> None:
        try:
            payload = msgspec.json.decode(errand.payload)
        except msgspec.MsgspecError as error:
            self._refuse(key, failure(error))
            return
        if errand.url is not None:
            url = errand.url if errand.net == nets.here() else errand.far_url
            if url is None:
                self._refuse(key, failure(HostError(_NO_WAY.format(errand.task))))
                return
            self._shop.door.give(key, Access(url, errand.key or ""))
        outcome = self._shop.begin(errand.job(self._hired.host.name, payload))
        if outcome is not None:
            self._over(key, outcome, self._shop.may_call)

    def _refuse(self, key: Key, outcome: Outcome) -> None:
        """Its end before it began."""
        self._shop.dismiss(key)
        self._over(key, outcome, False)

    def _wait(self, key: Key) -> bytes:
        waiter = SimpleQueue[bytes]()
        with self._news:
            record = self._records.get(key)
            if record is None:
                return _UNKNOWN
            if record.over is not None:
                record.told = True
                return record.over
            if record.waiter is not None:
                record.waiter.put(_REPLACED)  # or dead dispatchers' threads would heap up
            record.waiter = waiter
        return self._told(key, waiter.get())

    def _told(self, key: Key, over: bytes) -> bytes:
        with self._news:
            record = self._records.get(key)
            if record is not None and record.over is over:
                record.told = True
        return over

    def _over(self, key: Key, outcome: Outcome, in_thread: bool) -> None:
        """From the shop's thread, or the one that brought the errand."""
        log_bytes = 0
        if self._hired.keeps_logs:
            with contextlib.suppress(OSError):
                log_bytes = os.stat(self._shop.log_of(key)).st_size
        over = _kept(Over(outcome=outcome, in_thread=in_thread, log_bytes=log_bytes))
        with self._news:
            record = self._records.get(key)
            if record is None or record.over is not None:
                return
            record.over = over
            record.over_at = time.monotonic()
            self._kept_bytes += len(over)
            waiter, record.waiter = record.waiter, None
            if len(self._records) > _MOST_KEPT or self._kept_bytes > _MOST_KEPT_BYTES:
                self._drop_told()
        if waiter is not None:
            waiter.put(over)

    def _forget(self, ended: list[tuple[str, int]]) -> None:
        with self._news:
            for key in ended:
                self._drop(key)

    def _drop(self, key: Key) -> None:
        record = self._records.get(key)
        if record is not None and record.over is not None:
            self._kept_bytes -= len(record.over)
            del self._records[key]

    def _drop_told(self) -> None:
        """Of dispatchers that never say what they have recorded, the oldest half is believed to be so."""
        told = [key for key, record in self._records.items() if record.told]
        for key in told[: (len(told) + 1) // 2]:
            self._drop(key)

    # ---- news

    def _stalled(self, stall: Stall) -> None:
        with self._news:
            self._stalls.append(Blocked(stall.task, stall.attempt, stall.seconds, stall.stack, stall.over))
            self._stalled_so_far += 1
            self._news.notify_all()

    def _said(self, asked: list[tuple[str, int, int]]) -> list[tuple[str, int, int, bytes]]:
        said = []
        for task, attempt, after in asked:
            with contextlib.suppress(OSError):
                piece = read_on(Path(self._shop.log_of((task, attempt))), after, _PIECE_BYTES)
                if piece.data:
                    said.append((task, attempt, after, piece.data))
        return said

    # ---- alone

    def _grow_old(self) -> None:
        """A worker whose dispatchers are all gone for good does not stay for ever."""
        while not self._closed:
            time.sleep(_AGE_S)
            with self._news:
                is_busy = any(record.over is None for record in self._records.values())
                limit_s = _FORGOTTEN_S if self._records else self._hired.unheard_s
            if not is_busy and time.monotonic() - self._heard > limit_s:
                self._close()
                os._exit(0)


def _set(variables: Mapping[str, bytes]) -> None:
    os.environ.update({name: os.fsdecode(value) for name, value in variables.items()})
    time.tzset()  # a process that runs does not look at TZ again


def likeness(hiring: bytes) -> str:
    """The same for workers that were hired for the same; their own marks differ."""
    letter = msgspec.json.decode(hiring)
    letter.pop("tag", None)
    letter.pop("variables", None)  # `code` stands for them
    return hashlib.sha256(msgspec.json.encode(letter, order="deterministic")).hexdigest()[:32]


def _kept(over: Over) -> bytes:
    """As it is kept and sent: what cannot be written, such as half characters of a file's name, must not keep an
    attempt from ending."""
    try:
        return written(over)
    except _UNWRITABLE as error:
        told = over.outcome
        try:
            whole = replace(told, error=_whole(told.error), logs=_whole(told.logs))
            return written(msgspec.structs.replace(over, outcome=whole))
        except _UNWRITABLE:
            why = Outcome(Verdict.PERMANENT, error=f"its end cannot be told: {_whole(repr(error))}")
            return written(msgspec.structs.replace(over, outcome=why))


def _whole(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()


def _node_id() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())
