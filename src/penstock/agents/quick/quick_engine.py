"""What a quick call asks the container engine: whether a container runs, to resume one, to remove one.

The standard library alone. An engine that is not on a Unix socket, or does not answer, is a reason to take the full
path, which has a word for each fault.
"""

from __future__ import annotations

import json
import os

from penstock.agents.endpoints import READY, Endpoint, EndpointFile
from penstock.agents.engine.engine_socket import find_socket
from penstock.agents.quick.plain_http import Connection, Cut, Nonsense, NotReached, TooSlow
from penstock.errors import AgentError

_ANSWER_S = 10.0
_MOST_BYTES = 4_000_000
_UNIX = "unix://"
_SHA = "sha256:"


def is_running(container: str, image: str = "") -> bool:
    """Whether the engine says so; False also where it cannot be asked from here.

    With an image: and it was made from what has that name now.
    """
    status, body = _asked("GET", f"/containers/{container}/json")
    if status != 200:
        return False
    try:
        told = json.loads(body)
        state = told["State"]
        runs = bool(state["Running"]) and not state.get("Paused") and not state.get("Restarting")
        return runs and (not image or _is_of(image, told.get("Image")))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _is_of(image: str, image_id: object) -> bool:
    """A name that is gone from the engine is no reason to end what runs."""
    status, body = _asked("GET", f"/images/{image}/json")
    if status != 200 or not image_id:
        return True
    return str(json.loads(body)["Id"]).removeprefix(_SHA) == str(image_id).removeprefix(_SHA)


def has_ended(container: str) -> bool:
    """Whether the engine says that it runs no more, or knows nothing of it."""
    status, body = _asked("GET", f"/containers/{container}/json")
    if status != 200:
        return status == 404
    try:
        return json.loads(body)["State"]["Running"] is False
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def removed(container: str) -> bool:
    """By force, with its volumes. One that is not there is removed as well."""
    return _asked("DELETE", f"/containers/{container}?force=true&v=true")[0] in (200, 204, 404)


def resumed(endpoint: Endpoint, file: EndpointFile) -> bool:
    """Make a paused one go on, and say so to the others. Whoever resumed it a moment ago did as much."""
    status, _ = _asked("POST", f"/containers/{endpoint.container}/unpause")
    if status != 204 and not is_running(endpoint.container):
        return False
    return file.mark(endpoint.instance, READY)


def _asked(method: str, path: str) -> tuple[int, bytes]:
    try:
        url = find_socket(os.environ)
    except AgentError:
        return 0, b""
    if not url.startswith(_UNIX):
        return 0, b""
    try:
        with Connection(url.removeprefix(_UNIX), silence_s=_ANSWER_S) as connection:
            reply = connection.ask(method, path, head_s=_ANSWER_S)
            return reply.status, reply.body(_MOST_BYTES)
    except (NotReached, Cut, Nonsense, TooSlow):
        return 0, b""
