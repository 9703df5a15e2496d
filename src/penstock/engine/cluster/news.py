"""What a worker has to tell while its attempts run: loops they block, and the lines they write.

Nothing is asked of one whose attempts end quickly. A log is kept here, where it is looked for, and is whole before
the end of its attempt is told.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor

from penstock.engine.attempts import Run
from penstock.engine.base import Key, Stall
from penstock.engine.cluster.frames import Answer
from penstock.engine.cluster.letters import Listening, News, read, written
from penstock.engine.cluster.link import Link
from penstock.hosts.workspace import log_path, prepare

_SOON_S = 0.2


class Listener:
    """Of one worker. Its methods belong to the dispatcher's loop."""

    def __init__(
        self,
        link: Link,
        worker: str,
        host: str,
        runs: Mapping[Key, Run],
        on_stall: Callable[[Stall], None],
        work_dir: str | None,
        chores: Executor,
        stalls: int = 0,  # that were told to dispatchers before us
    ) -> None:
        self._link = link
        self._worker = worker
        self._host = host
        self._runs = runs
        self._on_stall = on_stall
        self._work_dir = work_dir
        self._chores = chores
        self._loop = asyncio.get_running_loop()
        self._stalls = stalls
        self._has: dict[Key, int] = {}  # bytes of logs that are here
        self._unkept: deque[tuple[News, Callable[[], None]]] = deque()  # in the order they came
        self._is_coming = False
        self._is_listening = False

    def begin_soon(self) -> None:
        if not self._is_coming and not self._is_listening:
            self._is_coming = True
            self._loop.call_later(_SOON_S, self.begin)

    def begin(self) -> None:
        self._is_coming = False
        if self._is_listening or not self._runs or not self._link.is_up:
            return
        self._is_listening = True
        logs = [] if self._work_dir is None else [(*key, self.has(key)) for key in self._runs]
        self._link.call(self._worker, "listen", written(Listening(self._stalls, logs)), self._heard)

    def has(self, key: Key) -> int:
        """How much of an attempt's log we know to be here; whoever takes one over has it told from the start."""
        return self._has.get(key, 0)

    def forget(self, key: Key) -> None:
        """Of an attempt that is no longer its worker's."""
        self._has.pop(key, None)

    def fetch(self, key: Key, size: int, then: Callable[[], None]) -> None:
        """Have the log of an attempt that is over up to its end, and go on."""
        before = self.has(key)

        def heard(answer: Answer, body: bytes) -> None:
            news = News() if answer.fault else read(body, News)
            self._keep(news, further)

        def further() -> None:
            if before < self.has(key) < size:
                self.fetch(key, size, then)
            else:
                then()

        letter = written(Listening(self._stalls, [(*key, before)], 0.0))
        self._link.call(self._worker, "listen", letter, heard)

    def _heard(self, answer: Answer, body: bytes) -> None:
        self._is_listening = False
        if answer.fault:
            self.begin_soon()
            return
        news = read(body, News)
        self._stalls = max(self._stalls + len(news.stalls), news.stalled)
        for stall in news.stalls:
            self._on_stall(
                Stall(self._host, stall.task, stall.attempt, stall.seconds, stall.stack, stall.over)
            )
        self._keep(news, self.begin)

    def _keep(self, news: News, then: Callable[[], None]) -> None:
        if not news.logs or self._work_dir is None:
            then()
            return
        self._unkept.append((news, then))
        if len(self._unkept) == 1:
            self._keep_next(self._work_dir)

    def _keep_next(self, work_dir: str) -> None:
        """One after the other, and only what is new: two answers may tell the same lines, the shorter one last."""
        news, then = self._unkept[0]
        pieces = [
            (task, attempt, has, data[has - start :])
            for task, attempt, start, data in news.logs
            if (task, attempt) in self._runs
            and start <= (has := self.has((task, attempt))) < start + len(data)
        ]
        writing = self._loop.run_in_executor(self._chores, _append, work_dir, self._host, pieces)

        def kept(done: asyncio.Future[None]) -> None:
            for task, attempt, start, data in pieces:
                if (task, attempt) in self._runs:
                    self._has[task, attempt] = start + len(data)
            self._unkept.popleft()
            if self._unkept:
                self._keep_next(work_dir)
            then()

        writing.add_done_callback(kept)


def _append(work_dir: str, host: str, pieces: Sequence[tuple[str, int, int, bytes]]) -> None:
    for task, attempt, start, data in pieces:
        path = log_path(work_dir, host, task, attempt)
        try:
            prepare(path.parent)
            # Only its user may read it: it holds what the attempt read and wrote.
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                os.truncate(file, start)
                os.pwrite(file, data, start)
            finally:
                os.close(file)
        except OSError:
            continue  # a disk that is full loses the log, not the attempt
