"""`pip` of [engine]: what attempts need and no node has is installed for them there, by Ray.

Ray copies the whole virtual environment that a node runs in, so the node of this test runs in a small one. The
package is a wheel made here, and nothing is fetched.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import sysconfig
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import penstock
from tests.acceptance.test_ray_dispatcher import PATIENCE_S, dispatching
from tests.acceptance.test_ray_head import free_port, head

CONFIG = """
store = "queue.db"

[engine]
type = "ray"
address = "{address}"
pip = ["{wheel}"]

[hosts.words]
type = "python"
call = "pipped_words:greet"
"""

CODE = """
import sys

def greet(name):
    return [f"hello, {name}", sys.prefix]
"""


def wheel(folder: Path) -> Path:
    """The least that pip takes for one."""
    path = folder / "pipped_words-1.0-py3-none-any.whl"
    about = "pipped_words-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("pipped_words.py", CODE)
        file.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: pipped-words\nVersion: 1.0\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")
    return path


def small_environment(folder: Path) -> Path:
    """It has pip, and finds everything else where this process does."""
    made = folder / "environment"
    told = ("--app-data", str(folder / "seed"), "--no-download", "--no-periodic-update")
    subprocess.run([sys.executable, "-m", "virtualenv", "--quiet", *told, str(made)], check=True)
    (packages,) = made.glob("lib/python*/site-packages")
    (packages / "ours.pth").write_text(sysconfig.get_path("purelib"))
    return made


@pytest.mark.slow
async def test_packages_are_installed_on_the_nodes(tmp_path: Path) -> None:
    assert find_spec("pipped_words") is None
    environment = small_environment(tmp_path)
    async with head(free_port(), str(environment / "bin" / "python")) as address:
        (tmp_path / "penstock.toml").write_text(CONFIG.format(address=address, wheel=wheel(tmp_path)))
        async with (
            penstock.open(tmp_path / "penstock.toml", dispatch=False) as client,
            dispatching(tmp_path),
            asyncio.timeout(PATIENCE_S),
        ):
            result = await client.wait(await client.submit(penstock.Task("greet", "node")))
            assert result.error is None
            said, prefix = result.value
            assert said == "hello, node"
            assert Path(prefix).name == "virtualenv"
            assert Path(prefix) not in (environment, Path(sys.prefix))
