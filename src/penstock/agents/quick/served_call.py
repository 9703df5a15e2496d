"""A call of an agent through the `serve` that runs: queued, given its turn and counted like all other work there.

The standard library alone: a warm `agent call` imports it.
"""

from __future__ import annotations

from penstock.agents.quick import direct_call
from penstock.agents.quick.answers import LINES, Ended, NothingRan
from penstock.agents.quick.direct_call import Asked
from penstock.agents.quick.plain_http import Connection, Cut, Nonsense, NotReached, TooSlow
from penstock.agents.serving import Serving
from penstock.agents.trail import Trail
from penstock.errors import AgentError, Unreachable, UsageError

_HEAD_S = 60.0
_SILENCE_S = 60.0


def through(server: Serving, asked: Asked, trail: Trail) -> Ended | None:
    """None: nothing was run, for it is not there, or does not take it: do without."""
    trail.note("serve", at=server.address, pid=server.pid)
    try:
        connection = Connection(server.address, silence_s=_SILENCE_S)
    except NotReached as error:
        trail.note(f"serve is not reached: {error}")
        return None
    with connection:
        headers = {
            "Authorization": f"Bearer {server.key}",
            "Content-Type": "application/json",
            "Accept": LINES,
        }
        path = f"/api/agents/{asked.agent}/call"
        body = asked.body(lane=asked.lane, priority=asked.priority)
        try:
            reply = connection.ask("POST", path, headers, body, head_s=_HEAD_S)
            connection.when_silent(lambda: _must_live(server))
            ended = direct_call.heard(asked, reply, lambda: trail.note("started"))
            trail.note("answered", id=ended.document.get("id"), exit=ended.status)
            return ended
        except NothingRan as refused:
            trail.note(f"serve takes nothing in: {refused}")
            return None
        except (AgentError, UsageError) as error:
            raise type(error)(f"agents.{asked.agent}: {error}") from None
        except (Cut, TooSlow, Nonsense) as error:
            raise Unreachable(
                f"serve at {server.address} (process {server.pid}) {error}: {asked.command!r} may have run; "
                "see its log"
            ) from None


def _must_live(server: Serving) -> None:
    """A command may be silent for long; who dispatches it may not be dead."""
    try:
        with Connection(server.address) as connection:
            if connection.ask("GET", "/health", head_s=_HEAD_S).status == 200:
                return
    except (NotReached, Cut, Nonsense, TooSlow):
        pass
    raise TooSlow("does not answer any more")
