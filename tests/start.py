"""What the suite and all its children inherit from whoever starts it, made the same however that is done.

A job in the background ignores Ctrl-C, `nohup` ignores the end of its terminal, cron has no home and no words for a
terminal, CI forces colors: none of that is what a test is about. A test that is sets it itself.
"""

from __future__ import annotations

import os
import pwd
import signal
import stat
import sys
import tempfile
from pathlib import Path

# What these two ignore is Python's own doing, in every process of it.
_PYTHON_IGNORES = {signal.SIGPIPE, getattr(signal, "SIGXFSZ", signal.SIGPIPE)}
_MOST_TMP = 40  # characters: sockets are made below it, whose paths may have 107
# Of the suite itself; whatever else begins so would be config of the Penstock that is tested.
_OURS = {
    "PENSTOCK_CONTAINER_SOCKET",
    "PENSTOCK_POSTGRES_BIN",
    "PENSTOCK_REQUIRE_ALL",
    "PENSTOCK_SEED",
    "PENSTOCK_SOAK",
    "PENSTOCK_TEST_POSTGRES",
}
_DROPPED = {
    # How a terminal looks.
    *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
    *("CI", "GITHUB_ACTIONS"),
    # How Python runs. Tests start hundreds of processes: without bytecode each would compile all that it imports.
    *("PYTHONDONTWRITEBYTECODE", "PYTHONWARNINGS", "PYTHONUNBUFFERED", "PYTHONOPTIMIZE", "PYTHONUTF8"),
    *("PYTHONIOENCODING", "PYTHONSAFEPATH", "PYTHONDEVMODE"),
    # Where requests go: those of the tests stay on this machine.
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    # Started by a hook of git, or by make.
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"),
    # Where a user's own files are: below HOME.
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
}


def forget_the_starter() -> None:
    """Once, before anything is imported that reads it."""
    _hear_signals()
    _open_standard_files()
    os.umask(0o022)
    for name in [*os.environ]:
        if name in _DROPPED or (name.startswith("PENSTOCK_") and name not in _OURS):
            del os.environ[name]
    sys.dont_write_bytecode = False
    os.environ["LC_ALL"] = os.environ["LANG"] = "C.UTF-8"
    os.environ["TERM"] = "xterm-256color"
    _find_home()
    _find_temporary()


def _hear_signals() -> None:
    for number in signal.valid_signals() - _PYTHON_IGNORES:
        if signal.getsignal(number) is signal.SIG_IGN:
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, usual)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _open_standard_files() -> None:
    """Else the next file that is opened would be the input or the output of a child."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest that is free
            os.set_inheritable(opened, True)


def _find_home() -> None:
    """Browsers, images of containers and caches are kept there, so it must be one that can be written."""
    for folder in (os.environ.get("HOME"), pwd.getpwuid(os.getuid()).pw_dir):
        if folder and os.path.isdir(folder) and os.access(folder, os.W_OK):
            os.environ["HOME"] = folder
            return
    os.environ["HOME"] = tempfile.mkdtemp(prefix="penstock-home-")


def _find_temporary() -> None:
    """Paths of sockets are short; and a database that root starts runs as another user, who must get there."""
    folder = Path(tempfile.gettempdir()).resolve()
    open_to_all = all(part.stat().st_mode & stat.S_IXOTH for part in (folder, *folder.parents))
    if (len(str(folder)) > _MOST_TMP or not open_to_all) and os.access("/tmp", os.W_OK):
        os.environ["TMPDIR"] = tempfile.tempdir = "/tmp"
