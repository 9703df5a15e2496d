"""deploy/compose.yaml brought up by podman-compose, with images that are made here instead of pulled.

PostgreSQL's is that of the `pgserver` wheel, HAProxy's the one that is installed on this machine, with what they
need. Podman's network may have no DNS, so the services know each other by fixed addresses in /etc/hosts.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from tests.acceptance.containers import CannotRun, ContainerEngine
from tests.acceptance.deployed_rig import NO_HAPROXY, free_port, haproxy
from tests.acceptance.engine_guard import Engine, root_of_python
from tests.acceptance.image_rig import ROOT

DEPLOY = ROOT / "deploy"
PASSWORD = "geheim"
_POSTGRES, _HAPROXY = "localhost/penstock-postgres:latest", "localhost/penstock-haproxy:latest"
_COMMAND_S = 120.0
# What the official image does with the same variables.
_ENTRY = """#!/bin/sh
set -e
export PATH=/pg/bin:/bin:/usr/bin
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    mkdir -p "$PGDATA"
    echo "$POSTGRES_PASSWORD" > /tmp/password
    initdb -D "$PGDATA" -U "$POSTGRES_USER" --pwfile=/tmp/password --auth=scram-sha-256 --locale=C --encoding=UTF8
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    echo "CREATE DATABASE $POSTGRES_DB;" | postgres --single -D "$PGDATA" postgres
fi
exec postgres -D "$PGDATA" -h 0.0.0.0
"""


def make_images(engine: ContainerEngine, work: Path) -> dict[str, str]:
    """PostgreSQL and HAProxy; the variables of compose.yaml that name them."""
    root = "localhost/penstock-root:latest"
    engine.podman("import", "--quiet", str(root_of_python(("libgcc-s1", "libstdc++6"))), root)
    wheel = importlib.util.find_spec("pgserver")
    if wheel is None or wheel.origin is None:
        raise CannotRun("the pgserver wheel is not installed: run make dev")
    package = Path(wheel.origin).parent
    (work / "postgres").mkdir()
    shutil.copytree(package / "pginstall", work / "postgres" / "pg", symlinks=True)
    if (libraries := package.with_name("pgserver.libs")).is_dir():
        shutil.copytree(libraries, work / "postgres" / "pgserver.libs")
    (work / "postgres" / "entry").write_text(_ENTRY)
    (work / "postgres" / "Containerfile").write_text(
        f"FROM {root}\nCOPY . /\n"
        "RUN mkdir -p /var/lib/postgresql/data && busybox chown 999:999 /var/lib/postgresql/data"
        " && echo 'postgres:x:999:999::/tmp:/bin/sh' > /etc/passwd\n"
        'ENV PATH=/pg/bin:/bin:/usr/bin\nUSER 999:999\nSTOPSIGNAL SIGINT\nENTRYPOINT ["sh", "/entry"]\n'
    )
    if (program := haproxy()) is None:
        raise CannotRun(NO_HAPROXY)
    (work / "haproxy").mkdir()
    for path in (program, *_libraries(program)):
        target = work / "haproxy" / os.path.realpath(path).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
        if os.path.realpath(path) != path:
            shutil.copy2(path, target.with_name(os.path.basename(path)))
    (work / "haproxy" / "Containerfile").write_text(
        f"FROM {root}\nCOPY . /\nUSER 99:99\nSTOPSIGNAL SIGUSR1\n"
        f'CMD ["{os.path.realpath(program)}", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]\n'
    )
    for name, tag in (("postgres", _POSTGRES), ("haproxy", _HAPROXY)):
        engine.podman(
            "build", "--quiet", "--layers=false", "--format=docker", f"--tag={tag}", str(work / name)
        )
    return {"POSTGRES_IMAGE": _POSTGRES, "HAPROXY_IMAGE": _HAPROXY}


def _libraries(program: str) -> list[str]:
    told = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=60, check=True).stdout
    own = ("libc.so", "libm.so", "libpthread", "librt", "libdl", "ld-linux")  # of the image
    paths = re.findall(r"=> (/\S+)", told)
    return [path for path in paths if not os.path.basename(path).startswith(own)]


class Compose:
    """A project of its own: nothing of it is seen by others, and nothing is left after `down`."""

    def __init__(self, engine: ContainerEngine, work: Path, images: Mapping[str, str]) -> None:
        self.project = f"deployed{os.urandom(3).hex()}"
        self.port = free_port()
        self._work = work
        podman = Engine(engine.folder)
        self._wrapper = work / "podman"
        words = " ".join(f"'{word}'" for word in podman.argv(f"--network-config-dir={work / 'networks'}"))
        self._wrapper.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        self._wrapper.chmod(0o755)
        self._environ = {**podman.environ, "PGPASSWORD": PASSWORD, "PENSTOCK_PORT": str(self.port), **images}
        (work / "none.env").touch()
        self._files = self._placed()

    def _placed(self) -> list[Path]:
        """The folder as it is deployed, with the addresses of this machine's network beside it."""
        folder = self._work / "deploy"
        shutil.copytree(DEPLOY, folder)
        front = folder / "haproxy.cfg"
        front.write_text(front.read_text().replace(" resolvers names", ""))  # there is no DNS to ask
        config = folder / "penstock.toml"
        config.write_text(
            config.read_text().replace("http://host.containers.internal:8000", "http://127.0.0.1:9")
        )
        services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
        net = f"10.231.{os.urandom(1)[0]}"
        addresses = {name: f"{net}.{number}" for number, name in enumerate(services, 10)}
        hosts = [f"{name}:{address}" for name, address in addresses.items()]
        more = {
            "services": {
                name: {"extra_hosts": hosts, "networks": {"default": {"ipv4_address": address}}}
                for name, address in addresses.items()
            },
            "networks": {"default": {"ipam": {"config": [{"subnet": f"{net}.0/24"}]}}},
        }
        (folder / "more.yaml").write_text(yaml.safe_dump(more))
        return [folder / "compose.yaml", folder / "more.yaml"]

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        files = [part for file in self._files for part in ("-f", str(file))]
        program = [
            sys.executable,
            "-m",
            "podman_compose",
            "--podman-path",
            str(self._wrapper),
            "--in-pod",
            "false",
        ]
        return subprocess.run(
            [*program, "--env-file", str(self._work / "none.env"), "-p", self.project, *files, *words],
            cwd=self._files[0].parent,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )

    def good(self, *words: str) -> str:
        done = self(*words)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    @property
    def folder(self) -> Path:
        """What is deployed."""
        return self._files[0].parent

    def logs(self) -> str:
        done = self("logs")
        return done.stdout + done.stderr

    def podman(self, *words: str) -> str:
        done = subprocess.run(
            [self._wrapper, *words],
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def container(self, service: str) -> str:
        """Its name, as podman knows it."""
        label = f"--filter=label=com.docker.compose.service={service}"
        project = f"--filter=label=com.docker.compose.project={self.project}"
        (name,) = self.podman("ps", "--all", "--format={{.Names}}", label, project).split()
        return name
