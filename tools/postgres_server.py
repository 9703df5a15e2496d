"""A PostgreSQL server of one's own, from the binaries of the `pgserver` wheel: for tests and benchmarks.

It lives in a folder of its own, listens on a socket in that folder and on a port of loopback, and
goes with the process that made it, however that ends; the folder goes too. Root may start one: it then runs as
another user, since PostgreSQL refuses root. PENSTOCK_POSTGRES_BIN names the folder of other binaries.

    python -m tools.postgres_server     prints where one is, as `store` of a config, and keeps it until Ctrl-C
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

_START_S = 60.0
_USERS = ("postgres", "nobody")  # whom root lends the server to
# Reads until the process that holds the other end of the pipe is gone, then clears up after it.
_GUARD = (
    'read _; kill -QUIT "$(head -n 1 "$1/data/postmaster.pid")";'
    ' while [ -e "$1/data/postmaster.pid" ] && [ "${n:-0}" -lt 50 ]; do sleep 0.1; n=$((n + 1)); done; rm -rf "$1"'
)
_SETTINGS = {
    "shared_buffers": "128MB",
    "max_connections": "200",
    "huge_pages": "off",
    "jit": "off",
    "timezone": "UTC",
    "lc_messages": "C",
    "max_wal_size": "2GB",
}
# What a power cut would take is of no worth in a test.
_FLEETING = {
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum_naptime": "10min",
    "shared_buffers": "32MB",
}


def binaries() -> Path:
    """The folder of `postgres`, `initdb`, `psql`, …"""
    if given := os.environ.get("PENSTOCK_POSTGRES_BIN"):
        return Path(given)
    found = importlib.util.find_spec("pgserver")  # not imported: that makes folders and takes locks
    if found is None or found.origin is None:
        raise RuntimeError("the pgserver wheel is not installed; run make dev")
    return Path(found.origin).parent / "pginstall" / "bin"


class PostgresServer:
    """`durable` waits for the disk as a real one does. `settings` go into postgresql.conf, `hba` before its own.

    `within` is the folder that its own is made in. A `standby_of` another follows that one, until it is promoted.
    """

    user = "postgres"

    def __init__(
        self,
        *,
        durable: bool = False,
        settings: Mapping[str, str] | None = None,
        hba: Sequence[str] = (),
        within: Path | None = None,
        standby_of: PostgresServer | None = None,
        port: int | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-pg-", dir=within))
        self.data = self.folder / "data"
        self.port = _free_port() if port is None else port
        self._account = _account()
        if self._account is not None:
            os.chown(self.folder, self._account.pw_uid, self._account.pw_gid)
        self.folder.chmod(0o755)  # clients of any user find the socket
        reading, self._alive = os.pipe()
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARD, "guard", str(self.folder)],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(reading)
        self._process: subprocess.Popen[bytes] | None = None
        init = ("--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", f"--username={self.user}")
        if standby_of is None:
            self._call("initdb", *init, f"--pgdata={self.data}")
        else:
            where = ("-h", str(standby_of.folder), "-p", str(standby_of.port), "-U", self.user)
            self._call("pg_basebackup", *where, "-D", str(self.data), "-R", "-c", "fast", "--no-sync")
        chosen = _SETTINGS | ({} if durable else _FLEETING) | dict(settings or {})
        self.set(chosen)
        self.allow(hba)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def url(
        self, database: str = "postgres", *, user: str = "postgres", tcp: bool = True, more: str = ""
    ) -> str:
        """As a store's place. `more` are parameters, such as `schema=x`."""
        if tcp:
            return f"postgresql://{user}@127.0.0.1:{self.port}/{database}" + (f"?{more}" if more else "")
        where = f"host={quote(str(self.folder), safe='')}&port={self.port}"
        return f"postgresql://{user}@/{database}?{where}" + (f"&{more}" if more else "")

    def set(self, settings: Mapping[str, str]) -> None:
        """Into postgresql.conf; told to the server by `reload` or `restart`."""
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def allow(self, hba: Sequence[str]) -> None:
        """Lines for pg_hba.conf, before those that let everybody of this machine in."""
        file = self.data / "pg_hba.conf"
        file.write_text("".join(f"{line}\n" for line in hba) + file.read_text())

    def own(self, path: Path) -> None:
        """Give a file to the user that the server runs as."""
        if self._account is not None:
            os.chown(path, self._account.pw_uid, self._account.pw_gid)

    def start(self) -> PostgresServer:
        command = [str(binaries() / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self.folder}"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._as_user,
            )
        deadline = time.monotonic() + _START_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.02)
        return self

    def stop(self, how: str = "fast") -> None:
        """`smart` waits for clients, `fast` ends them, `immediate` is a crash that keeps what was committed."""
        how_signal = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}[how]
        self._end(how_signal)

    def kill(self) -> None:
        """As if it had run out of memory: no farewell to anybody."""
        self._end(signal.SIGKILL)

    def restart(self, how: str = "fast") -> None:
        self.stop(how)
        self.start()

    def pause(self) -> None:
        """Nothing is answered until `go_on`; connections stay."""
        for pid in self._processes():
            os.kill(pid, signal.SIGSTOP)

    def go_on(self) -> None:
        for pid in self._processes():
            os.kill(pid, signal.SIGCONT)

    def promote(self) -> None:
        """A standby becomes a primary."""
        self.sql("SELECT pg_promote(true, 60)")

    def reload(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGHUP)

    def sql(self, statement: str, database: str = "postgres") -> str:
        """What psql prints for it: rows as lines, columns apart by `|`."""
        where = ("-h", str(self.folder), "-p", str(self.port), "-U", self.user, "-d", database)
        return self._call("psql", "-XqAt", "-v", "ON_ERROR_STOP=1", *where, "-c", statement).strip()

    def close(self) -> None:
        """Stop it and remove all of it."""
        if self._process is not None:
            self.stop("immediate")
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1
        self._guard.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> PostgresServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- how

    @property
    def _as_user(self) -> dict[str, Any]:
        account = self._account
        if account is None:
            return {}
        return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}

    def _call(self, program: str, *arguments: str) -> str:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [str(binaries() / program), *arguments],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
            **self._as_user,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def _is_ready(self) -> bool:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) > 7 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def _processes(self) -> list[int]:
        """The server and its children, the server first."""
        if self.pid is None:
            return []
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [self.pid, *map(int, children)]

    def _end(self, how: int) -> None:
        process = self._process
        if process is None:
            return
        children = self._processes()[1:] if how == signal.SIGKILL and process.poll() is None else []
        process.send_signal(how)
        for child in children:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait()
        self._process = None
        if how == signal.SIGKILL:  # nobody was left to remove them; the next one refuses to start beside them
            (self.data / "postmaster.pid").unlink(missing_ok=True)
            deadline = time.monotonic() + _START_S
            while any(os.path.exists(f"/proc/{child}") for child in children) and time.monotonic() < deadline:
                time.sleep(0.01)


def _account() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in _USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError(f"PostgreSQL does not run as root, and there is no user {' or '.join(_USERS)}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description="A PostgreSQL server to try things with, until Ctrl-C.")
    parser.add_argument("--port", type=int, help="on loopback; else one that is free")
    port: int | None = parser.parse_args().port
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with PostgresServer(port=port) as server:
        print(f'store = "{server.url()}"', flush=True)
        print("Ctrl-C ends it, and all that was kept in it is gone", file=sys.stderr, flush=True)
        stopped.wait()


if __name__ == "__main__":
    main()
