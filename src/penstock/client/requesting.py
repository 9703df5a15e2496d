"""What a client asks of whoever dispatches: to cancel, to retry, to pause, to let somebody in."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.client.looking import Looking
from penstock.client.own_dispatcher import OwnDispatcher
from penstock.config import Config
from penstock.errors import Unreachable
from penstock.lifecycle import UNWELL
from penstock.model import State
from penstock.store.base import Answer, Request, Store, Token

LOOK_S = 1.0  # how often a waiting client makes sure that somebody dispatches
_ANSWER_S = 30.0


class Requesting(Looking):
    """`answers`: what it asks it does by itself where nobody dispatches."""

    def __init__(self, config: Config, store: Store, own: OwnDispatcher, *, answers: bool) -> None:
        super().__init__(config, store)
        self._own = own
        self._answers = answers

    async def cancel(self, *task_ids: str) -> Answer:
        return await self._ask("cancel", {"tasks": await self._full_ids(task_ids)})

    async def cancel_run(self, run: str) -> Answer:
        states = [str(State.QUEUED), str(State.RUNNING)]
        return await self._ask("cancel", {"run": run, "states": states})

    async def retry(self, *task_ids: str) -> Answer:
        return await self._ask("retry", {"tasks": await self._full_ids(task_ids)})

    async def retry_run(self, run: str) -> Answer:
        """Queue again whatever of a run failed, was cancelled or is blocked."""
        states = [*map(str, UNWELL)]
        return await self._ask("retry", {"run": run, "states": states})

    async def set_priority(self, *task_ids: str, priority: int) -> Answer:
        """Make tasks more urgent (0) or less (4).

        Queued ones move to their place, running ones have it for their next attempt. What they have waited counts.
        """
        return await self._ask("priority", {"tasks": await self._full_ids(task_ids), "priority": priority})

    async def change(self, do: str, task_ids: Sequence[str], *, priority: int | None = None) -> Answer:
        """`"cancel"`, `"retry"` or `"priority"` for many tasks at once, by their whole ids."""
        asked = {"tasks": list(task_ids)} | ({} if priority is None else {"priority": priority})
        return await self._ask(do, asked)

    async def set_run_priority(self, run: str, priority: int) -> Answer:
        """The same for whatever of a run has not ended."""
        states = [str(State.QUEUED), str(State.RUNNING)]
        return await self._ask("priority", {"run": run, "states": states, "priority": priority})

    async def pause(self, scope: str = "all", name: str = "") -> Answer:
        return await self._ask("pause", {"scope": scope, "name": name})

    async def resume(self, scope: str = "all", name: str = "") -> Answer:
        return await self._ask("resume", {"scope": scope, "name": name})

    async def set_slots(self, host: str, slots: int) -> Answer:
        return await self._ask("slots", {"host": host, "slots": slots})

    async def add_token(self, token: Token) -> bool:
        """Let somebody in; False when the name is taken. A running `serve` knows it when this returns."""
        return await self._store.save_token(token) and await self._tokens_changed()

    async def revoke_token(self, name: str) -> bool:
        """Shut somebody out; False when there is none of that name. `serve` refuses it when this returns."""
        return await self._store.revoke_token(name) and await self._tokens_changed()

    async def _tokens_changed(self) -> bool:
        # One that starts from now on reads them after it has become the dispatcher.
        if await self._store.owned_by() is not None:
            await self._ask("tokens", {})
        return True

    async def _ask(self, verb: str, args: Mapping[str, Any]) -> Answer:
        """Leave a request and wait for its answer; where nobody dispatches, do it ourselves and leave again."""
        bell = self._store.bell()
        try:
            number = await self._store.ask(Request(verb, args))
            await self._answer_if_nobody_does()
            deadline = time.monotonic() + _ANSWER_S
            while (answer := await self._store.answer_to(number)) is None:
                if time.monotonic() > deadline:
                    raise Unreachable(
                        f"the dispatcher has not answered for {_ANSWER_S:g} s; the request stands, "
                        "see `penstock status` for who dispatches"
                    )
                if not await bell.wait(LOOK_S):
                    await self._answer_if_nobody_does()
            return answer
        finally:
            bell.close()

    async def _answer_if_nobody_does(self) -> None:
        if self._answers:
            await self._own.answer()

    async def _full_ids(self, task_ids: Sequence[str]) -> list[str]:
        return [(await self.get(t)).task.id for t in task_ids]
