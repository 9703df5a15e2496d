"""Runs a Podman of the suite's own, with its own storage and images, for as long as somebody uses it.

    engine_guard.py USERS        USERS is a file on which every user of the engine holds a shared lock

It prints one line of JSON, {"folder", "url"} or {"error"}, and goes on in the background. Once it gets USERS alone,
nobody is left, also when the test run was killed: it removes every container, image, process and file, and ends.
Until then it takes back the ports of containers that Podman forgot (Ports).
The standard library alone, for it runs apart from the suite.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

PYTHON_IMAGE = "localhost/penstock-test:latest"
BUSYBOX_IMAGE = "localhost/penstock-busybox:latest"
# Debian's own Python without what it is not run for, and a shell: no registry is needed.
PACKAGES = (
    *("busybox-static", "libbz2-1.0", "libc6", "libexpat1", "libffi8", "liblzma5", "libpython3.11-minimal"),
    *("libpython3.11-stdlib", "libssl3", "libuuid1", "python3.11-minimal", "zlib1g"),
)
APPLETS = (
    "cat",
    "dd",
    "echo",
    "env",
    "false",
    "head",
    "id",
    "ls",
    "mkdir",
    "nc",
    "ping",
    "sh",
    "sleep",
    "true",
    "yes",
)
CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
"""
_COMMAND_S = 120.0
_READY_S = 30.0
_BEGIN_S = 300.0
_LOOK_S = 1.0
_FORGOTTEN_S = 10.0  # the engine of somebody else may take its time to start a container


class CannotRun(Exception):
    """Why there is no engine here, and what to do about it."""


class Engine:
    """Podman's commands on a storage of its own: nothing of the user's engine is touched."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"unix://{folder / 'engine.sock'}"
        self.environ = {**os.environ, "CONTAINERS_CONF": str(folder / "containers.conf")}
        self.environ.pop("CONTAINER_HOST", None)
        self.environ.pop("DOCKER_HOST", None)

    def argv(self, *words: str) -> list[str]:
        places = [f"--{name}={self.folder / name}" for name in ("root", "runroot", "tmpdir")]
        return ["podman", *places, *words]

    def run(self, *words: str) -> str:
        done = subprocess.run(
            self.argv(*words),
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
        if done.returncode:
            raise CannotRun(f"podman {words[0]} failed: {' '.join(done.stderr.split())[-600:]}")
        return done.stdout

    def serve(self, url: str) -> subprocess.Popen[bytes]:
        """The API on another socket; the caller ends it."""
        with (self.folder / "service.log").open("ab") as log:
            return subprocess.Popen(
                self.argv("system", "service", "--time=0", url),
                cwd=self.folder,  # Podman leaves a file `oom` there when a container's memory runs out
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )


# ---- images


def root_of_python(more: Sequence[str] = ()) -> Path:
    """A tar of the root of the image with Python and more packages, made once and kept in the user's cache."""
    packages = (*PACKAGES, *more)
    mark = hashlib.blake2b(repr((packages, APPLETS, 2)).encode(), digest_size=8).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock-tests"
    found = cache / f"root-{mark}.tar"
    if not found.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            draft = Path(work) / "root.tar"
            with tarfile.open(draft, "w") as tar:
                tar.add(_unpacked(Path(work), packages), arcname=".", filter=_roots)
            draft.replace(found)
    return found


def _unpacked(work: Path, packages: Sequence[str]) -> Path:
    try:
        for words in (["apt-get", "download", *packages], ["dpkg", "--version"]):
            subprocess.run(words, cwd=work, capture_output=True, timeout=_COMMAND_S, check=True)
        root = work / "root"
        for package in sorted(work.glob("*.deb")):
            subprocess.run(["dpkg", "-x", package, root], capture_output=True, timeout=_COMMAND_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", b"") or str(error).encode()
        raise CannotRun(
            f"the suite's images need apt-get, dpkg of Debian 12, and its packages once: try apt-get update "
            f"({' '.join(told.decode(errors='replace').split())[-300:]})"
        ) from None
    for folder in ("usr/share/doc", "usr/share/man", "usr/share/locale"):
        shutil.rmtree(root / folder, ignore_errors=True)
    for folder in ("agent", "dev", "etc", "penstock", "proc", "run/penstock", "sys", "tmp"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "usr/bin/python3").symlink_to("python3.11")
    _link_applets(root)
    return root


def _link_applets(root: Path) -> None:
    for name in APPLETS:
        (root / "bin" / name).symlink_to("busybox")


def _roots(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def make_images(engine: Engine) -> None:
    python = root_of_python()
    engine.run("import", "--quiet", "--change", 'CMD ["/usr/bin/python3"]', str(python), PYTHON_IMAGE)
    root = engine.folder / "busybox"
    (root / "bin").mkdir(parents=True)
    (root / "tmp").mkdir(mode=0o755)  # as some images have it: closed to all but root
    with tarfile.open(python) as tar:
        source = tar.extractfile("./bin/busybox")
        assert source is not None
        (root / "bin" / "busybox").write_bytes(source.read())
    (root / "bin" / "busybox").chmod(0o755)
    _link_applets(root)
    draft = engine.folder / "busybox.tar"
    with tarfile.open(draft, "w") as tar:
        tar.add(root, arcname=".", filter=_roots)
    engine.run("import", "--quiet", "--change", 'CMD ["/bin/sh"]', str(draft), BUSYBOX_IMAGE)


# ---- published ports


class Ports:
    """Takes back the ports of this engine's containers that are gone.

    A Podman that is killed while it starts a container never removes the rules that lead its port to it.
    Whoever listens on that port later, any server of any test, would not hear a single call.
    """

    def __init__(self, engine: Engine) -> None:
        self._containers = engine.folder / "root" / "overlay-containers" / "containers.json"
        self._others = self._led_to()
        self._missing: dict[str, float] = {}  # since when

    def sweep(self) -> bool:
        """Remove the rules of who is missing for some time; whether somebody is missing now.

        A container has its rules before it has a process, and after.
        """
        now = time.monotonic()
        missing = self._led_to() - self._others - self._kept()
        if missing:
            running = _command_lines()
            missing = {id for id in missing if id not in running}
        self._missing = {id: self._missing.get(id, now) for id in missing}
        for id, since in self._missing.items():
            if now - since >= _FORGOTTEN_S:
                _remove_rules(id)
        return bool(missing)

    def _kept(self) -> set[str]:
        try:
            return {each["id"] for each in json.loads(self._containers.read_text())}
        except (OSError, ValueError):
            return set()

    @staticmethod
    def _led_to() -> set[str]:
        return {
            id for rule in _rules() if "DNAT" in rule for id in re.findall(r'id: \\?"([0-9a-f]{64})', rule)
        }


def _rules() -> list[str]:
    """The machine's rules for addresses; none where they cannot be read: then Podman made none either."""
    try:
        words = ["iptables-save", "-t", "nat"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    except OSError:
        return []
    return [line for line in done.stdout.splitlines() if line.startswith("-A ")]


def _command_lines() -> str:
    """Every running container has a watching process with its id among the arguments, whichever engine's it is."""
    lines = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(process.read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(lines)


def _remove_rules(id: str) -> None:
    """Those that name it, and the chains that only they led to."""
    for rule in _rules():
        if id not in rule:
            continue
        _, *rest = shlex.split(rule)
        _iptables("--delete", *rest)
        if re.fullmatch(r"CNI-(DN-)?[0-9a-f]+", rest[-1]):
            _iptables("--flush", rest[-1])
            _iptables("--delete-chain", rest[-1])


def _iptables(*words: str) -> None:
    words = ("iptables", "--wait", "-t", "nat", *words)
    subprocess.run(words, capture_output=True, timeout=_COMMAND_S, check=False)


# ---- the engine's life


def until(condition: Callable[[], bool], timeout_s: float) -> bool:
    end = time.monotonic() + timeout_s
    pause = threading.Event()
    while not condition():
        if time.monotonic() > end:
            return False
        pause.wait(0.02)
    return True


def answers(url: str) -> bool:
    """Whether somebody listens there: unix:///PATH or tcp://HOST:PORT."""
    if url.startswith("unix://"):
        family: int = socket.AF_UNIX
        address: str | tuple[str, int] = url.removeprefix("unix://")
    else:
        host, _, port = url.removeprefix("tcp://").rpartition(":")
        family, address = socket.AF_INET, (host, int(port))
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(address)
        except OSError:
            return False
        return True


def begin(engine: Engine) -> subprocess.Popen[bytes]:
    if shutil.which("podman") is None:
        raise CannotRun("podman is not installed: run `make system-packages`, or apt-get install podman runc")
    (engine.folder / "containers.conf").write_text(CONTAINERS_CONF)
    make_images(engine)
    service = engine.serve(engine.url)
    if not until(lambda: answers(engine.url) or service.poll() is not None, _READY_S) or service.poll():
        told = " ".join((engine.folder / "service.log").read_text(errors="replace").split())[-600:]
        end_service(service)
        raise CannotRun(f"podman's service does not start here: {told}")
    return service


def end_service(service: subprocess.Popen[bytes]) -> None:
    service.terminate()
    try:
        service.wait(10)
    except subprocess.TimeoutExpired:
        service.kill()
        service.wait()


def clean(engine: Engine, service: subprocess.Popen[bytes] | None, ports: Ports) -> None:
    """Nothing of it is left: no container, process, mount, port or file."""
    for words in (["rm", "--all", "--force", "--volumes", "--time=0"], ["rmi", "--all", "--force"]):
        try:
            engine.run(*words)
        except (CannotRun, OSError, subprocess.SubprocessError):
            continue
    if service is not None:
        end_service(service)
    until(lambda: not ports.sweep(), _COMMAND_S)
    for path in mounts_below(engine.folder):
        subprocess.run(["umount", "--lazy", path], capture_output=True, timeout=_COMMAND_S, check=False)
    shutil.rmtree(engine.folder, ignore_errors=True)
    if engine.folder.exists():  # rootless: files of the containers' users are not ours to remove outside
        words = ["podman", "unshare", "rm", "-rf", str(engine.folder)]
        subprocess.run(words, capture_output=True, timeout=_COMMAND_S, check=False)


def mounts_below(folder: Path) -> list[str]:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        paths = [line.split()[4] for line in file]
    return sorted((path for path in paths if path.startswith(f"{folder}/")), reverse=True)


def begun(users: Path) -> dict[str, str]:
    """Have a guard begin; what it says. The caller holds a shared lock on `users`, and goes on to."""
    words = [sys.executable, __file__, str(users)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_BEGIN_S, check=True)
    told: dict[str, str] = json.loads(done.stdout)
    return told


def guard(users: str, told: int) -> None:
    """Runs in the background: begins, says so, waits until nobody is left, cleans up."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # those are for the test run, whose end it waits for
    engine = Engine(Path(tempfile.mkdtemp(prefix="penstock-engine-")))
    ports = Ports(engine)
    service = None
    lock = os.open(users, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            service = begin(engine)
            answer = {"folder": str(engine.folder), "url": engine.url}
        except (CannotRun, OSError, subprocess.SubprocessError) as error:
            answer = {"error": " ".join(str(error).split())}
        os.write(told, json.dumps(answer).encode() + b"\n")
        os.close(told)
        if service is not None:
            while not until(lambda: _is_alone(lock), _LOOK_S):
                ports.sweep()
    finally:
        clean(engine, service, ports)


def _is_alone(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def main(arguments: Sequence[str]) -> int:
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        with os.fdopen(reading) as pipe:
            sys.stdout.write(pipe.readline())
        return 0
    os.setsid()
    os.close(reading)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    guard(arguments[0], writing)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
