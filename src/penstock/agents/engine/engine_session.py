"""A session with the container engine: opened once in a process, and every fault in it told in our words."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiodocker
import aiohttp
from aiodocker.containers import DockerContainer

from penstock.agents.engine import engine_faults
from penstock.agents.engine.engine_faults import Asked
from penstock.agents.engine.engine_socket import find_socket, is_remote, remote_host

ANSWER_S = 60.0  # an engine that takes longer to answer is stuck
LOOPBACK = "127.0.0.1"


class EngineSession:
    def __init__(self, environ: Mapping[str, str], url: str | None = None) -> None:
        self._environ = environ
        self.url = url or ""
        self.is_podman = False  # until it says so
        self._docker: aiodocker.Docker | None = None
        self._connector: aiohttp.BaseConnector | None = None
        self._asked: dict[str, Asked] = {}  # what is known of the containers that this process made

    async def open(self) -> None:
        if self._docker is not None:
            return
        self.url = self.url or find_socket(self._environ)
        if not self.is_remote:
            # No connection is kept: one to an engine that was restarted would fail the next request.
            self._connector = aiohttp.UnixConnector(self.url.removeprefix("unix://"), force_close=True)
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        url = "unix://localhost" if self._connector is not None else self.url
        with self.faults():
            self._docker = aiodocker.Docker(url=url, connector=self._connector, timeout=timeout)
        try:
            await self._ping()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        docker, self._docker = self._docker, None
        connector, self._connector = self._connector, None
        if docker is not None:
            await docker.close()
        if connector is not None:
            await connector.close()

    @property
    def docker(self) -> aiodocker.Docker:
        assert self._docker is not None, "open() comes first"
        return self._docker

    @property
    def is_remote(self) -> bool:
        return is_remote(self.url)

    @property
    def host(self) -> str:
        """Where published ports are reached."""
        host = remote_host(self.url) if self.is_remote else LOOPBACK
        return LOOPBACK if host in ("localhost", "::1") else host

    def container(self, id: str) -> DockerContainer:
        return self.docker.containers.container(id)

    # ---- what is told of faults

    def know(self, id: str, asked: Asked) -> None:
        self._asked[id] = asked

    def forget(self, id: str) -> None:
        self._asked.pop(id, None)

    def known(self, id: str | None) -> Asked:
        return self._asked.get(id or "") or Asked(self.url)

    @contextmanager
    def faults(
        self, id: str | None = None, *, asked: Asked | None = None, may_be_gone: bool = False
    ) -> Iterator[None]:
        """Whatever goes wrong inside is raised as one of our errors."""
        asked = asked or self.known(id)
        try:
            yield
        except aiodocker.DockerError as error:
            if not (may_be_gone and engine_faults.is_gone(error.status, str(error.message))):
                raise engine_faults.translated(error.status, str(error.message), asked) from None
        except TimeoutError:
            raise engine_faults.unreachable(asked, f"no answer within {ANSWER_S:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            told = engine_faults.one_line(str(error) or type(error).__name__, asked.secrets)
            raise engine_faults.unreachable(asked, told) from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            told = f"its answer is none of a container engine's ({type(error).__name__})"
            raise engine_faults.unreachable(asked, told) from None

    @asynccontextmanager
    async def streamed(
        self, path: str, asked: Mapping[str, str], id: str | None = None, timeout_s: float | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """For answers that have no end, or that the client library reads less carefully than we must."""
        url = f"{self.docker.docker_host}/{self.docker.api_version}/{path}"
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=ANSWER_S)
        with self.faults(id):
            async with self.docker.session.get(url, params=asked, timeout=timeout) as reply:
                if reply.status >= 400:
                    raise aiodocker.DockerError(reply.status, _message(await reply.read()))
                yield reply

    async def _ping(self) -> None:
        with self.faults():
            async with self.docker.session.get(f"{self.docker.docker_host}/_ping") as reply:
                version = reply.headers.get("Api-Version", "")
                self.is_podman = "Libpod-Api-Version" in reply.headers
                if reply.status != 200:
                    raise aiodocker.DockerError(reply.status, _message(await reply.read()))
        if re.fullmatch(r"\d+\.\d+", version):
            self.docker.api_version = f"v{version}"  # saves asking again


def table(data: bytes) -> dict[str, Any]:
    """A JSON table; an empty one where it is none."""
    try:
        told = json.loads(data)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _message(data: bytes) -> str:
    return str(table(data).get("message") or data.decode(errors="replace"))
