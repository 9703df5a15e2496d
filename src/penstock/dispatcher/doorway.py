"""The dispatcher's side of its own door: open before anything starts, shut when nothing runs any more.

Calls of attempts come in through whoever serves `/v1` in this process. `serve` does so anyway; elsewhere a
private server is opened for as long as the dispatcher runs. It stands above the dispatcher, so it is handed in
as a function.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, TypeAlias

from penstock.hosts.inner_desk import InnerDesk
from penstock.hosts.own_door import Entrance, OwnDoor

if TYPE_CHECKING:
    from penstock.dispatcher.loop import Dispatcher

OpenPrivately: TypeAlias = Callable[["Dispatcher"], AbstractAsyncContextManager[Entrance]]


class Doorway:
    """Without a door nobody goes through; `lanes` are those of calls, and of what questions ask for."""

    def __init__(
        self,
        door: OwnDoor | None = None,
        open_privately: OpenPrivately | None = None,
        lanes: tuple[str, ...] = (),
        desk: InnerDesk | None = None,
    ) -> None:
        self.desk = desk  # where questions ask for tasks of their own
        self._door = door
        self._open_privately = open_privately
        self.lanes = lanes

    @property
    def is_wanted(self) -> bool:
        """Whether some host calls models through its own dispatcher."""
        return self._door is not None

    @asynccontextmanager
    async def opened(
        self, dispatcher: Dispatcher, entrance: Entrance | None, *, answer_only: bool
    ) -> AsyncIterator[None]:
        if self._door is None or answer_only:
            yield
            return
        async with self._way_in(dispatcher, entrance) as way_in:
            self._door.open(way_in)
            try:
                yield
            finally:
                self._door.close()

    def _way_in(
        self, dispatcher: Dispatcher, entrance: Entrance | None
    ) -> AbstractAsyncContextManager[Entrance]:
        if entrance is not None:
            return nullcontext(entrance)
        assert self._open_privately is not None, "a door comes with one who opens it"
        return self._open_privately(dispatcher)
