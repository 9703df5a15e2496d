"""Drafts of files that were being written when their writer was killed: nobody else knows of them.

A file is written under a name of its writer's own and then put in its place. What is old and has such a name is
nobody's: a draft is there for milliseconds.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress

_OLD_S = 600.0
_DRAFT = re.compile(r".+\.(json|log|py)\.\d+(\.[0-9a-f]+)?")


def remove_left(folder: str) -> None:
    with suppress(OSError):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            with suppress(OSError):
                if _DRAFT.fullmatch(name) and time.time() - os.stat(path).st_mtime > _OLD_S:
                    os.unlink(path)
