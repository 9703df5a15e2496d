"""Every error Penstock raises on purpose, in one tree.

    PenstockError                  .exit_status is what a command ends with
    ├── UsageError                 2  the request is wrong; nothing was changed
    │   ├── ConfigError            2  penstock.toml: every problem at once, each with its place
    │   ├── TaskError              2  a task, a task file or a reference in it
    │   └── UnknownTask            2  no task, run, host or lane of that name
    ├── StoreError                 3
    │   ├── StoreLocked            3  another process holds the file too long
    │   ├── StoreFull              3  no space left; nothing acknowledged is lost
    │   ├── StoreMissing           3  there is none yet, and who only reads makes none
    │   ├── StoreRefused           3  the database does not let us do it; waiting does not help
    │   ├── StoreCorrupt           3  the file is damaged, or not ours
    │   └── StoreTooNew            3  written by a newer Penstock
    ├── DispatcherError            3
    │   ├── AlreadyOwned           3  another dispatcher works on this store
    │   └── Unreachable            3  the dispatcher does not answer
    ├── AgentError                 3  a container agent cannot be used
    │   ├── EngineUnreachable      3  no container engine answers
    │   ├── ImageMissing           3  the engine has no such image
    │   ├── AgentNotReady          3  its container ended, or did not answer in time
    │   ├── AgentBusy              3  somebody else starts it for too long, or keeps it from another config
    │   ├── AgentLost              3  its container went away while it worked
    │   └── NoRoomForAgent         3  no port, disk, memory or process is left for it
    ├── LibraryError               3  the library of the councils cannot be used
    ├── QuestionError              1  a council's question ended without a record
    ├── IllegalStep                1  a step that lifecycle.py does not know (a defect of ours)
    └── AttemptError                  what user code and adapters may raise
        ├── TemporaryError            try again, after a backoff
        ├── PermanentError            do not try again
        │   └── CodeMissing           the function to call is not on this machine
        ├── HostError                 the host is to blame
        └── ThrottledError            the host asked for less

A message is one line: what is wrong, where, and what to do about it.
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
    pass


class HostError(AttemptError):
    pass


class ThrottledError(AttemptError):
    pass
