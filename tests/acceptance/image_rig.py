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
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.acceptance.containers import CannotRun, ContainerEngine
from tests.acceptance.engine_guard import root_of_python

ROOT = Path(__file__).parent.parent.parent
IMAGE = "localhost/penstock-deployed:latest"
_BASE = "localhost/penstock-base:latest"
_PACKAGES = (
    "libgcc-s1",
    "libsqlite3-0",
    "libstdc++6",
    "tini",
)  # what an image like python:slim has, and an init
_APPLETS = ("chown", "kill", "rm")
_BUILD_S = 300.0
_PIP_CONF = "[global]\nno-index = true\nfind-links = /wheels\nroot-user-action = ignore\n"
_PIP = "#!/usr/bin/python3\nimport sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n"


def build(engine: ContainerEngine, work: Path, extras: str) -> str:
    """The image as deploy/Containerfile makes it, with these extras. CannotRun says what is missing here."""
    if sys.version_info[:2] != (3, 11):
        raise CannotRun("Debian 12's Python is 3.11: the wheels of this environment do not fit it")
    _make_base(engine, work)
    (wheels := work / "wheels").mkdir()
    _fill(wheels, work / "site", extras)
    engine.podman(
        *(
            "build",
            "--quiet",
            "--layers=false",
            "--format=docker",
            f"--tag={IMAGE}",
            f"--file={ROOT / 'deploy' / 'Containerfile'}",
        ),
        f"--volume={wheels}:/wheels:ro",
        *(f"--build-arg=BASE={_BASE}", f"--build-arg=EXTRAS={extras}", str(ROOT)),
    )
    return IMAGE


def _make_base(engine: ContainerEngine, work: Path) -> None:
    engine.podman("import", "--quiet", str(root_of_python(_PACKAGES)), "localhost/penstock-root:latest")
    root = work / "root"
    for name, text in (("etc/pip.conf", _PIP_CONF), ("usr/local/bin/pip", _PIP), ("etc/passwd", "")):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (root / "usr/local/bin/pip").chmod(0o755)
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3.11")
    (root / "bin").mkdir()
    for name in _APPLETS:
        (root / "bin" / name).symlink_to("busybox")
    spec = importlib.util.find_spec("pip")
    if spec is None or spec.origin is None:
        raise CannotRun("this environment has no pip to put into the image: python -m ensurepip")
    shutil.copytree(Path(spec.origin).parent, root / "usr/lib/python3/dist-packages/pip")
    recipe = work / "Containerfile"
    recipe.write_text(
        "FROM localhost/penstock-root:latest\nCOPY root /\nRUN rm -f /usr/lib/python3.11/EXTERNALLY-MANAGED\n"
    )
    engine.podman("build", "--quiet", "--layers=false", f"--tag={_BASE}", f"--file={recipe}", str(work))


def _fill(wheels: Path, site: Path, extras: str) -> None:
    """All that Penstock needs and what builds it; from uv's cache, or else from the registry."""
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    words = [uv, "pip", "install", "--quiet", f"--python={sys.executable}", f"--target={site}"]
    told = ""
    for offline in (["--offline"], []):
        try:
            wanted = ["hatchling", f"{ROOT}[{extras}]"]
            done = subprocess.run(
                [*words, *offline, *wanted], capture_output=True, text=True, timeout=_BUILD_S, check=False
            )
        except OSError as error:
            raise CannotRun(f"uv is needed for the image's wheels: run make install ({error})") from None
        if done.returncode == 0:
            break
        told = " ".join(done.stderr.split())[-300:]
    else:
        raise CannotRun(f"uv has not what the image needs, and cannot fetch it: {told}")
    for info in sorted(site.glob("*.dist-info")):
        if not info.name.startswith("penstock-"):  # that is built in the image
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
