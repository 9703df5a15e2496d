"""Connections to an agent's containers, kept between calls, and what of an answer's head is believed.

A container may run anything, so nothing that it sends is trusted: an answer without the instance's own proof is
nobody's, its head has limits, redirects are not followed, nothing is unpacked. Whatever goes wrong on the way is
one clear `CallFailed`.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import aiohttp

from penstock.agents.calls.wary_protocol import reading_warily
from penstock.agents.endpoints import Endpoint
from penstock.agents.engine.unix_sockets import pinned
from penstock.version import __version__

PROOF_HEADER = "X-Penstock-Proof"
OUTPUT_LIMIT_BYTES = 10_000_000
_CONNECT_S = 5.0
_KEEP_ALIVE_S = 30.0
_HEAD_LIMITS: dict[str, Any] = {"max_line_size": 4096, "max_field_size": 4096, "max_headers": 64}
_ERROR_CHARS = 200


class Trouble(Enum):
    """Why there is no answer: what it says of the container, and whether the command may have run."""

    REFUSED = "no connection"  # nothing was run
    STRANGER = "somebody else answers"  # nothing of ours was run
    LOST = "the connection was lost"  # it may have run
    SILENT = "no answer in time"  # it may have run
    UNUSABLE = "no answer of the protocol"  # it may have run
    TOO_LARGE = "the answer is too large"  # it ran; another try would say as much

    @property
    def nothing_ran(self) -> bool:
        return self in (Trouble.REFUSED, Trouble.STRANGER)


class CallFailed(Exception):
    """A container gave no answer that could be used."""

    def __init__(self, trouble: Trouble, text: str, instance: str = "") -> None:
        super().__init__(text)
        self.trouble = trouble
        self.instance = instance  # which one it was, where its caller has said so


@dataclass(frozen=True, slots=True)
class Terms:
    """How one agent is called."""

    plain: bool = False  # its server knows no keys, ids or proofs
    output_limit_bytes: int = OUTPUT_LIMIT_BYTES  # of one answer, as it is sent
    connect_s: float = _CONNECT_S


class _BySocket(NamedTuple):
    """The way to one container by its Unix socket, which is held open so that no other takes its place."""

    session: aiohttp.ClientSession
    held: ExitStack
    path: str


class Connections:
    """To the containers of one agent."""

    def __init__(self, agent: str, terms: Terms) -> None:
        self.agent = agent
        self.terms = terms
        self._tcp: aiohttp.ClientSession | None = None
        self._by_socket: dict[str, _BySocket] = {}  # by instance

    async def open(self) -> None:
        self._tcp = self._session(aiohttp.TCPConnector(limit=0, **self._keeping()))

    async def close(self) -> None:
        tcp, self._tcp = self._tcp, None
        if tcp is not None:
            await tcp.close()
        for instance in list(self._by_socket):
            await self._forget(instance)

    async def send(
        self, method: str, endpoint: Endpoint, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        """The head of the answer, proven to be this instance's. The caller closes it."""
        session, base = await self._way(endpoint)
        own = {} if self.terms.plain else {"Authorization": f"Bearer {endpoint.key}"}
        try:
            response = await session.request(
                method, base + path, data=body, headers={**headers, **own}, allow_redirects=False
            )
        except (aiohttp.ClientConnectionError, OSError) as error:
            await self._forget(endpoint.instance)
            raise self._unreached(endpoint, error) from None
        except (aiohttp.ClientError, ValueError) as error:
            raise self.unusable(_told(error)) from None
        given = response.headers.get(PROOF_HEADER, "")
        if not self.terms.plain and not _are_same(given, endpoint.proof):
            response.close()
            text = (
                f"{self.agent}: what answers at {endpoint.address} is not its container {endpoint.instance}"
            )
            raise CallFailed(Trouble.STRANGER, f"{text}; nothing was run")
        return response

    async def piece(self, response: aiohttp.ClientResponse) -> bytes:
        """The next bytes of an answer as they came; empty at its end."""
        try:
            return await response.content.readany()
        except (aiohttp.ClientError, OSError):
            raise self.broken_off("the container ended the connection") from None

    # ---- faults

    def broken_off(self, how: str) -> CallFailed:
        return CallFailed(
            Trouble.LOST, f"{self.agent}: the answer broke off ({how}); the command may have run"
        )

    def too_large(self, limit_bytes: int) -> CallFailed:
        text = (
            f"{self.agent} answered with more than {limit_bytes} bytes; print less, write a file, or raise "
            "output_limit_bytes"
        )
        return CallFailed(Trouble.TOO_LARGE, text)

    def unusable(self, what: str) -> CallFailed:
        text = f"{self.agent} does not keep to the agent protocol: it sent {what}"
        return CallFailed(Trouble.UNUSABLE, text)

    def _unreached(self, endpoint: Endpoint, error: Exception) -> CallFailed:
        where = f"{self.agent}: its container {endpoint.instance} at {endpoint.address}"
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            return CallFailed(Trouble.REFUSED, f"{where} takes no connections; nothing was run")
        return CallFailed(Trouble.LOST, f"{where} closed the connection; the command may have run")

    # ---- ways to containers

    async def _way(self, endpoint: Endpoint) -> tuple[aiohttp.ClientSession, str]:
        if self._tcp is None:
            raise RuntimeError("the calls of this agent are not open")
        if not endpoint.is_socket:
            return self._tcp, f"http://{endpoint.address}"
        found = self._by_socket.get(endpoint.instance)
        if found is None:
            for instance in self._gone():
                await self._forget(instance)
            found = self._by_socket[endpoint.instance] = self._by_file(endpoint)
        return found.session, "http://agent"

    def _by_file(self, endpoint: Endpoint) -> _BySocket:
        with ExitStack() as stack:
            try:
                address = stack.enter_context(pinned(endpoint.address))
            except OSError:
                text = f"{self.agent}: its container {endpoint.instance} has no socket at {endpoint.address}"
                raise CallFailed(Trouble.REFUSED, f"{text}; nothing was run") from None
            connector = aiohttp.UnixConnector(address, limit=0, **self._keeping())
            return _BySocket(self._session(connector), stack.pop_all(), endpoint.address)

    def _gone(self) -> list[str]:
        """Containers whose sockets were removed."""
        return [one for one, way in self._by_socket.items() if not os.path.exists(way.path)]

    async def _forget(self, instance: str) -> None:
        """Its socket may be made anew: it is looked for again at the next call."""
        found = self._by_socket.pop(instance, None)
        if found is not None:
            await found.session.close()
            found.held.close()

    def _keeping(self) -> dict[str, Any]:
        # An agent without ids would run again what is sent again: no connection that may be stale is used for it.
        return {"force_close": True} if self.terms.plain else {"keepalive_timeout": _KEEP_ALIVE_S}

    def _session(self, connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
        wait_s = self.terms.connect_s
        return aiohttp.ClientSession(
            connector=reading_warily(connector),
            trust_env=False,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=wait_s, sock_connect=wait_s, sock_read=None),
            headers={"User-Agent": f"penstock/{__version__}", "Accept-Encoding": "identity"},
            **_HEAD_LIMITS,
        )


def _are_same(given: str, proof: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), proof.encode())


def _told(error: Exception) -> str:
    """What a reader of HTTP found wrong, without the bytes that were sent."""
    text = str(getattr(error, "message", "") or type(error).__name__)
    return f"no HTTP that could be read ({' '.join(text.partition(':')[0].split())[:_ERROR_CHARS]})"
