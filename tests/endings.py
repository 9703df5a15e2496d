"""What tests start once for a whole process, and who ends it: when its last test is over, or at the latest with it.

xdist waits ten seconds for a process that is through with its tests, and then kills it.
"""

from __future__ import annotations

import atexit
from contextlib import ExitStack

ENDINGS = ExitStack()
atexit.register(ENDINGS.close)
