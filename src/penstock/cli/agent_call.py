"""The full path of `agent call`: reads the config, gets the agent going, and then calls it the quick way.

Only one of many who come at once to an agent that is not there comes here; see agents/quick/turns.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.agents import figures
from penstock.agents.quick import known_config, quick_call
from penstock.agents.quick.quick_call import NoEndpoint, Unfinished
from penstock.agents.starts.failures import Failures
from penstock.errors import AgentError

if TYPE_CHECKING:
    from penstock.config import Config
    from penstock.config.agents import Agent

_TRIES = 5  # containers that were made, and are gone when they are called


def finish(left: Unfinished, settings: Mapping[str, Any] | None = None) -> int:
    """The exit status of a call that the quick path could not make. `settings` are keys of the config, set."""
    from penstock.cli.agent_session import ended_as_interrupted

    try:
        with ended_as_interrupted() as ended_by:
            status = quick_call.ended_with(lambda: _finish(left, settings or {}))
        return 128 + ended_by[0] if ended_by else status
    finally:
        if left.waiting is not None:
            left.waiting.over()


def _finish(left: Unfinished, settings: Mapping[str, Any]) -> int:
    from penstock.cli.agent_session import agent_of, agents_dir, get_going

    asked, trail = left.asked, left.trail
    path = known_config.found_config(asked.config, os.getcwd())
    before = None if path is None else known_config.stamp(path)
    config = _read(asked.config, settings)
    agent = agent_of(config, asked.agent)
    known = known_of(agent)
    quick_call.must_be_served(asked, known)
    trail.note("config read")
    place = agents_dir(config)
    if before is not None and not settings:
        known_config.note(place, agent.name, [before, *_stamps(agent)], known)
    for _ in range(_TRIES):
        with _told_to_others(left, place, known.fingerprint):
            get_going(config, agent, trail)
        if left.waiting is not None:
            left.waiting.over()
        try:
            return quick_call.finished(asked, quick_call.called(asked, place, known, trail))
        except NoEndpoint:
            trail.note("it is gone again")
    figures.add(os.path.join(place, agent.name), trail.figures, ok=False)
    raise AgentError(
        f"agents.{agent.name}: its containers are gone before they can be called; "
        f"see `penstock agent logs {agent.name}`"
    )


@contextmanager
def _told_to_others(left: Unfinished, place: str, fingerprint: str) -> Iterator[None]:
    """An error is that of all who wait for us: also where it came before anybody could start anything."""
    folder = os.path.join(place, left.asked.agent)
    failures = Failures(folder)
    before = failures.last()
    try:
        yield
    except AgentError as error:
        figures.add(folder, left.trail.figures, ok=False)
        if left.waiting is not None and failures.since(before, fingerprint) is None:
            failures.tell(os.urandom(8).hex(), fingerprint, error)
        raise


def _read(path: str | None, settings: Mapping[str, Any]) -> Config:
    from penstock.wiring import read_config

    return read_config(None if path is None else Path(path), settings)


def known_of(agent: Agent) -> known_config.Known:
    """What a quick call needs to know of it."""
    from penstock.agents.engine.server_file import fingerprint

    pool = agent.pool
    return known_config.Known(
        fingerprint(agent),
        agent.health,
        agent.plain,
        pool.start_s,
        max_tasks=pool.max_tasks,
        max_age_s=pool.max_age_s,
        image=agent.image,
        ends_itself=agent.has_own_server and pool.idle_s > 0,
    )


def _stamps(agent: Agent) -> list[known_config.Stamp]:
    """The files besides the config that say what the agent is."""
    from penstock.agents.engine.server_file import SERVER_PATH
    from penstock.config.manifests import MANIFEST

    files = [SERVER_PATH] if agent.has_own_server else []
    if agent.folder is not None:
        files.append(os.path.join(agent.folder, MANIFEST))
    return [known_config.stamp(path) for path in files]
