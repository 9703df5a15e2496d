"""What a watcher has under way: requests that became tasks, and those that are owed an answer."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from penstock.intake.folder.bodies import Refused


class Flights:
    def __init__(self) -> None:
        self._tasks: dict[str, str] = {}  # request → task
        self._requests: dict[str, str] = {}  # task → request
        self._owed: dict[str, Refused | None] = {}  # None: the answer is its task's
        self._stuck: set[str] = set()  # answered, but their files cannot be moved away

    def __contains__(self, name: str) -> bool:
        """Whether a file of that name has been dealt with."""
        return name in self._tasks or name in self._owed or name in self._stuck

    def __len__(self) -> int:
        """Tasks that have not been answered."""
        return len(self._tasks)

    def is_running(self, name: str) -> bool:
        """It has become a task that, for all we know, has not ended."""
        return name in self._tasks and name not in self._owed

    def task(self, name: str) -> str:
        return self._tasks[name]

    def begin(self, name: str, task_id: str) -> None:
        self._tasks[name] = task_id
        self._requests[task_id] = name

    def end(self, task_id: str) -> None:
        self._owed.setdefault(self._requests[task_id], None)

    def refuse(self, name: str, why: Refused) -> None:
        self._owed[name] = why

    def owed(self) -> Iterator[tuple[str, Refused | None]]:
        """In the order in which they came to be owed."""
        return iter(self._owed.items())

    @property
    def owes(self) -> bool:
        return bool(self._owed)

    def land(self, name: str) -> None:
        """Its answer was given."""
        del self._owed[name]
        task = self._tasks.pop(name, None)
        if task is not None:
            del self._requests[task]

    def hold_back(self, name: str) -> None:
        """Its file stays where it is; it is not looked at again."""
        self._stuck.add(name)

    def keep(self, names: Collection[str]) -> None:
        """These files are there; those that could not be moved and are not among them have gone."""
        self._stuck.intersection_update(names)

    def clear(self) -> None:
        for known in (self._tasks, self._requests, self._owed, self._stuck):
            known.clear()
