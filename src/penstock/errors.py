"""Every error Penstock raises on purpose, in one tree.

    PenstockError                  .exit_status is the exit status of a command
    ├── UsageError                 2  the request is wrong; nothing changed
    │   ├── ConfigError            2  penstock.toml: lists every problem with its place
    │   ├── TaskError              2  a task, a task file or a reference in it is wrong
    │   │   └── TaskRefused        2  one task of a submit is refused, by its place in it
    │   └── UnknownTask            2  no task, run, host or lane has that name
    ├── StoreError                 3
    │   ├── StoreLocked            3  another process keeps the file locked
    │   ├── StoreFull              3  the disk is full; no acknowledged task is lost
    │   ├── StoreMissing           3  the store does not exist yet; commands that only read do not create it
    │   ├── StoreRefused           3  the database denies access; waiting does not help
    │   ├── StoreCorrupt           3  the file is damaged or is not a Penstock store
    │   └── StoreTooNew            3  a newer Penstock wrote the store
    ├── DispatcherError            3
    │   ├── AlreadyOwned           3  another dispatcher owns this store
    │   └── Unreachable            3  the dispatcher does not answer
    ├── AgentError                 3  a container agent does not work
    │   ├── EngineUnreachable      3  no container engine answers
    │   ├── ImageMissing           3  the engine has no such image
    │   ├── AgentNotReady          3  its container exited or did not answer in time
    │   ├── AgentBusy              3  another process is starting it, or runs it with another config
    │   ├── AgentLost              3  its container died during the task
    │   └── NoRoomForAgent         3  the machine has no port, disk, memory or process left for it
    ├── LibraryError               3  the councils' document library does not work
    ├── QuestionError              1  a council's question ended without a record
    ├── IllegalStep                1  a state change that lifecycle.py does not allow (a bug in Penstock)
    └── AttemptError                  base class of what your functions may raise
        ├── TemporaryError            retry after a backoff
        ├── PermanentError            do not retry
        │   └── CodeMissing           this machine lacks the function
        ├── HostError                 the host is at fault: use another host
        │   └── HostNeedsFix          retrying cannot help until somebody fixes the host
        └── ThrottledError            the host asked for fewer calls

A message is one line: what happened, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence

_INSTALL = "pip install 'penstock-ai[{extra}]'"


def install_line(extra: str) -> str:
    """The command that adds an extra of pyproject.toml: the remedy in every message about a missing package."""
    return _INSTALL.format(extra=extra)


class PenstockError(Exception):
    exit_status = 1


class UsageError(PenstockError):
    exit_status = 2


class ConfigError(UsageError):
    """Everything wrong with a config, at once."""

    def __init__(self, problems: Sequence[str] | str) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class TaskError(UsageError):
    pass


class TaskRefused(TaskError):
    """One task of several is why none was kept. Who knows where it came from says that instead of its place."""

    def __init__(self, place: int, of: int, problem: str, field: str = "") -> None:
        self.place = place  # from 0
        self.field = field
        self.problem = problem
        super().__init__(f"task {place + 1} of {of}: {problem}")


class UnknownTask(UsageError):
    pass


class StoreError(PenstockError):
    exit_status = 3


class StoreLocked(StoreError):
    pass


class StoreFull(StoreError):
    pass


class StoreMissing(StoreError):
    pass


class StoreRefused(StoreError):
    pass


class StoreCorrupt(StoreError):
    pass


class StoreTooNew(StoreError):
    pass


class DispatcherError(PenstockError):
    exit_status = 3


class AlreadyOwned(DispatcherError):
    pass


class Unreachable(DispatcherError):
    pass


class AgentError(PenstockError):
    exit_status = 3


class EngineUnreachable(AgentError):
    pass


class ImageMissing(AgentError):
    pass


class AgentNotReady(AgentError):
    pass


class AgentBusy(AgentError):
    pass


class AgentLost(AgentError):
    pass


class NoRoomForAgent(AgentError):
    pass


class LibraryError(PenstockError):
    exit_status = 3


class QuestionError(PenstockError):
    pass


class IllegalStep(PenstockError):
    pass


class AttemptError(PenstockError):
    """Raised by the code of an attempt to say what its failure means."""

    def __init__(self, message: str = "", *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TemporaryError(AttemptError):
    pass


class PermanentError(AttemptError):
    pass


class CodeMissing(PermanentError):
    """`what` is missing: the "module", or the "function" in it."""

    def __init__(self, message: str = "", *, what: str = "module") -> None:
        super().__init__(message)
        self.what = what


class HostError(AttemptError):
    pass


class HostNeedsFix(HostError):
    """Raise it with a message that says what to fix."""


class ThrottledError(AttemptError):
    pass
