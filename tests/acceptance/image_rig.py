"""The image of deploy/Containerfile, built without a registry: its base and its wheels come from this machine.

The base is Debian's Python as the other images of the suite have it, with pip and a folder of wheels that pip is
told to take everything from. The wheels are those that uv has installed here, packed again.
"""

from __future__ import annotations

import csv
import importlib.util
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.acceptance.containers import PYTHON_IMAGE, CannotRun, ContainerEngine
from tests.acceptance.engine_guard import Engine, root_of_python

ROOT = Path(__file__).parent.parent.parent
IMAGE, HULL = "localhost/penstock-deployed:latest", "localhost/penstock-hull:latest"
EXTRAS = "postgres"
_PACKAGES = ("libgcc-s1", "libsqlite3-0", "libstdc++6", "tini")  # what python:slim has, and an init
_APPLETS = ("chown", "kill", "rm", "sed", "sha256sum")
_BUILD_S = 900.0  # on a machine that has much else to do
_PIP_CONF = "[global]\nno-index = true\nfind-links = /wheels\nroot-user-action = ignore\n"
_PIP = "#!/usr/bin/python3\nimport sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n"
# Says what it would have built from and installed.
_NO_PIP = """#!/usr/bin/python3
import os, sys
if sys.argv[1] == "wheel":
    folder = sys.argv[sys.argv.index("--wheel-dir") + 1]
    os.makedirs(folder)
    found = [os.path.join(place, name) for place, _, names in os.walk(sys.argv[-1]) for name in names]
    with open(f"{folder}/penstock_ai-0-py3-none-any.whl", "w") as file:
        file.write("\\n".join(found))
else:
    wheel, _, extras = sys.argv[-1].rstrip("]").partition("[")
    with open("/usr/local/bin/penstock", "w") as file:
        file.write(f"#!/bin/sh\\necho '{extras}'\\necho '{open(wheel).read()}'\\n")
    os.chmod("/usr/local/bin/penstock", 0o755)
"""


def build(engine: ContainerEngine, work: Path) -> str:
    """The image as deploy/Containerfile makes it. CannotRun says what is missing here."""
    if sys.version_info[:2] != (3, 11):
        raise CannotRun("Debian 12's Python is 3.11: the wheels of this environment do not fit it")
    spec = importlib.util.find_spec("pip")
    if spec is None or spec.origin is None:
        raise CannotRun("this environment has no pip to put into the image: python -m ensurepip")
    base = "localhost/penstock-root:latest"
    engine.podman("import", "--quiet", str(root_of_python(_PACKAGES)), base)
    shutil.copytree(Path(spec.origin).parent, work / "root/usr/lib/python3/dist-packages/pip")
    (wheels := work / "wheels").mkdir()
    _fill(wheels, work / "site")
    files = {"etc/pip.conf": _PIP_CONF, "usr/local/bin/pip": _PIP}
    return _build(engine, work, base, files, IMAGE, f"--volume={wheels}:/wheels:ro")


def build_hull(engine: ContainerEngine, work: Path) -> str:
    """Every step of it in seconds, by a pip that installs nothing."""
    files = {"usr/local/bin/pip": _NO_PIP, "usr/local/bin/tini": '#!/bin/sh\nshift\nexec "$@"\n'}
    return _build(engine, work, PYTHON_IMAGE, files, HULL)


def _build(
    engine: ContainerEngine, work: Path, base: str, files: Mapping[str, str], tag: str, *options: str
) -> str:
    root = work / "root"
    for name, text in {**files, "etc/passwd": ""}.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3.11")
    (root / "bin").mkdir()
    for name in _APPLETS:
        (root / "bin" / name).symlink_to("busybox")
    recipe = work / "Containerfile"
    recipe.write_text(f"FROM {base}\nCOPY root /\nRUN rm -f /usr/lib/python3.11/EXTERNALLY-MANAGED\n")
    _podman_build(engine, f"--tag={tag}-base", f"--file={recipe}", str(work))
    _podman_build(
        engine,
        *("--format=docker", f"--tag={tag}", f"--file={ROOT / 'deploy' / 'Containerfile'}", *options),
        *(f"--build-arg=BASE={tag}-base", f"--build-arg=EXTRAS={EXTRAS}", str(ROOT)),
    )
    return tag


def _podman_build(engine: ContainerEngine, *words: str) -> None:
    podman = Engine(engine.folder)
    command = podman.argv("build", "--quiet", "--layers=false", *words)
    done = subprocess.run(
        command, env=podman.environ, capture_output=True, text=True, timeout=_BUILD_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def _fill(wheels: Path, site: Path) -> None:
    """All that Penstock needs and what builds it; from uv's cache, or else from the registry."""
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    words = [uv, "pip", "install", "--quiet", f"--python={sys.executable}", f"--target={site}"]
    told = ""
    for offline in (["--offline"], []):
        try:
            constraints = f"--constraints={ROOT / 'constraints' / 'penstock.txt'}"
            wanted = [constraints, "hatchling", f"{ROOT}[{EXTRAS}]"]
            done = subprocess.run(
                [*words, *offline, *wanted], capture_output=True, text=True, timeout=_BUILD_S, check=False
            )
        except OSError as error:
            raise CannotRun(f"uv is needed for the image's wheels: run make dev ({error})") from None
        if done.returncode == 0:
            break
        told = " ".join(done.stderr.split())[-300:]
    else:
        raise CannotRun(f"uv has not what the image needs, and cannot fetch it: {told}")
    for info in sorted(site.glob("*.dist-info")):
        if not info.name.startswith("penstock_ai-"):  # that is built in the image
            _pack(info, wheels)


def _pack(info: Path, wheels: Path) -> None:
    """A wheel again, of what was installed from one."""
    lines = (info / "WHEEL").read_text().splitlines()
    tags = [line.partition(":")[2].strip().split("-") for line in lines if line.startswith("Tag:")]
    parts = (".".join(dict.fromkeys(tag[place] for tag in tags)) for place in range(3))
    name = "-".join((info.name.removesuffix(".dist-info"), *parts))
    with (info / "RECORD").open(newline="") as record:
        files = list(_own(csv.reader(record), info))
    with zipfile.ZipFile(wheels / f"{name}.whl", "w") as wheel:
        for file in files:
            wheel.write(info.parent / file, file)
        wheel.writestr(f"{info.name}/RECORD", "".join(f"{file},,\n" for file in files))


def _own(rows: Iterator[Sequence[str]], info: Path) -> Iterator[str]:
    """The files of a package, without programs, which are made anew, and without what the installer wrote."""
    for path, *_ in rows:
        is_installers = path in {
            f"{info.name}/{name}" for name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
        }
        if not path.startswith(("bin/", "../")) and not is_installers:
            yield path
