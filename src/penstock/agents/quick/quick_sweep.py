"""What a quick call does after its own work, now and then, where no dispatcher keeps the containers of its agent.

    leaving, and nobody uses it         it is removed
    ended by itself                     it is removed
    paused by a keeper that was killed  it is resumed, so that its server can end by itself when nobody calls it

The standard library alone. Whatever fails here is somebody's turn next time.
"""

from __future__ import annotations

from contextlib import suppress

from penstock.agents import keeper_note
from penstock.agents.endpoints import LEAVING, PAUSED, Endpoint, EndpointFile
from penstock.agents.quick import direct_call, quick_engine
from penstock.agents.quick.known_config import Known
from penstock.agents.trail import Trail
from penstock.errors import AgentError

_ANSWER_S = 1.0
_QUIET_S = 60.0  # one that was not seen for so long may have ended


def sweep(file: EndpointFile, known: Known, trail: Trail) -> None:
    """For who holds none of them."""
    if keeper_note.found(file.folder) is not None:
        return  # they are its own business
    for one in file.read():
        with suppress(AgentError):
            if one.state == LEAVING:
                _remove(one, file, known, trail)
            elif one.state == PAUSED:
                if known.ends_itself and one.fingerprint == known.fingerprint:
                    _wake(one, file, trail)
            elif file.validated_s_ago(one) > _QUIET_S and quick_engine.has_ended(one.container):
                _remove(one, file, known, trail)


def _remove(endpoint: Endpoint, file: EndpointFile, known: Known, trail: Trail) -> None:
    with file.alone(endpoint) as is_alone:
        if is_alone and not _is_at_work(endpoint, known) and quick_engine.removed(endpoint.container):
            trail.note(f"removed container {endpoint.container[:12]}, whose time is over")
            file.drop(endpoint.instance)


def _is_at_work(endpoint: Endpoint, known: Known) -> bool:
    """On tasks whose callers have gone on purpose, and may come back for them."""
    if not quick_engine.is_running(endpoint.container):
        return False
    told = direct_call.health(endpoint, known.health, plain=known.plain, within_s=_ANSWER_S)
    return told is not None and bool(told.get("running"))


def _wake(endpoint: Endpoint, file: EndpointFile, trail: Trail) -> None:
    with file.using(endpoint) as held:
        if held is not None and held.state == PAUSED and quick_engine.resumed(held, file):
            trail.note(f"resumed container {endpoint.container[:12]}, which nobody keeps any more")
