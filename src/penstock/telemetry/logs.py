"""Where log lines go while a command runs: to one handler of ours, and to nobody else's."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def handled(name: str, handler: logging.Handler) -> Iterator[None]:
    """What the logger of that name and those below it log goes to the handler alone."""
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    propagates, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
