"""How often a dispatcher's process looks for garbage.

What the loop makes goes as soon as nobody needs it, without anybody looking. What stays are the queued tasks, and
to look at all of them again after every few hundred new objects takes a fifth of a busy dispatcher's time.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG = 50_000  # new objects until the young are looked at
_OLDER = (20, 50)  # looks at the young until those that stayed are, and at these until all are

_lock = threading.Lock()
_before: list[tuple[int, int, int]] = []  # one for each dispatcher of this process


@contextmanager
def seldom_swept() -> Iterator[None]:
    """While any dispatcher of this process is in here; a process that never sweeps stays so."""
    with _lock:
        _before.append(_before[0] if _before else gc.get_threshold())
        if 0 < _before[0][0] < _YOUNG:
            gc.set_threshold(_YOUNG, *_OLDER)
    try:
        yield
    finally:
        with _lock:
            before = _before.pop()
            if not _before:
                gc.set_threshold(*before)
