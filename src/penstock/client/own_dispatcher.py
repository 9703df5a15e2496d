"""A client's own dispatcher: in a thread of this process, and only where nobody else dispatches."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.config import Config
from penstock.errors import AlreadyOwned, DispatcherError
from penstock.store.base import Store
from penstock.store.standbys import standbys
from penstock.wiring import Dispatching, make_dispatcher, open_store

if TYPE_CHECKING:
    from penstock.council.live import Hub
    from penstock.dispatcher.background import BackgroundDispatcher
    from penstock.dispatcher.loop import Dispatcher
    from penstock.telemetry.facts import Listener


class OwnDispatcher:
    """`listeners` are told its story."""

    def __init__(
        self, config: Config, store: Store, dispatching: Dispatching, listeners: Sequence[Listener]
    ) -> None:
        self.dispatching = dispatching
        self._config = config
        self._store = store
        self._listeners = listeners
        self._background: BackgroundDispatcher | None = None

    @property
    def runs(self) -> bool:
        return self._background is not None

    @property
    def live(self) -> Hub | None:
        """Live events of questions that it answers."""
        return None if self._background is None else self._background.live

    async def ensure(self) -> None:
        """Have a dispatcher: another process's if there is one, else our own in a thread of its own."""
        from penstock.dispatcher.background import BackgroundDispatcher

        if self._background is not None and self._is_alive(self._background):
            return
        self._background = None
        if await self._somebody_does():
            return
        background = BackgroundDispatcher(self._parts)
        try:
            await background.start()
        except AlreadyOwned:
            return
        self._background = background

    async def answer(self) -> None:
        """Where nobody dispatches: do what was asked, and leave again."""
        if self._background is not None or await self._somebody_does():
            return
        dispatcher = make_dispatcher(self._config, self._store, "answering a request", traced=False)
        with suppress(AlreadyOwned):  # one has just begun: it answers
            await dispatcher.run(answer_only=True)

    async def stop(self, *, put_back: bool) -> None:
        """It finishes what runs, or puts it back, and starts nothing more."""
        if self._background is None:
            return
        try:
            await self._background.stop(put_back=put_back)
        except DispatcherError:
            if not self._store.elects:  # else another has taken over, and goes on with what ran
                raise
        finally:
            self._background = None

    async def _somebody_does(self) -> bool:
        """Or will in a moment."""
        return await self._store.owned_by() is not None or bool(await standbys(self._store))

    def _is_alive(self, background: BackgroundDispatcher) -> bool:
        """Raises what ended it, unless another took over: that one goes on with the work."""
        try:
            return background.is_alive()
        except DispatcherError:
            if not self._store.elects:
                raise
            return False

    def _parts(self) -> tuple[Store, Dispatcher]:
        store = open_store(self._config)
        dispatcher = make_dispatcher(self._config, store, self.dispatching.command, self.dispatching)
        for listener in self._listeners:
            dispatcher.story.listen(listener)
        return store, dispatcher
