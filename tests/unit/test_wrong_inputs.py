"""Wrong inputs and what becomes of them, as one table: what is told, and how it ends (promise 7, E9).

The inputs are in tests/golden/wrong_inputs.toml, what is told in wrong_inputs.txt beside it;
`REFRESH_GOLDEN=1 python -m pytest tests/unit/test_wrong_inputs.py` writes that anew.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli_rig import CONFIG, Cli, make_cli
from tests.unit.web_rig import serving, token

GOLDEN = Path(__file__).parent.parent / "golden"
CASES: list[dict[str, Any]] = tomllib.loads((GOLDEN / "wrong_inputs.toml").read_text("utf-8"))["case"]
TABLE = GOLDEN / "wrong_inputs.txt"
LEAST = 60
SECRET = "s3cret"

# What a line begins with that says where: a file with its line, an option, a command, a path, a key.
PLACE = re.compile(
    r"([\w./-]+\.(toml|jsonl|yaml|csv|db)(:\d+)*|--[a-z-]+|[A-Z]+|[a-z-]+|DIR\S*|/\S+|[\w.-]+:PORT|\S+:\d+):? \S"
)
# Or what it says of a word that was typed.
TYPED = re.compile(
    r"'[^']+'|^(GET|POST) /|0\.0\.0\.0|127\.0\.0\.1:PORT|\bdispatcher\b|\btoken\b|\bbody\b|\bcouncil"
)
REMEDY = re.compile(r"; |must |did you mean|\buse |see /docs|only ")


def expected() -> dict[str, str]:
    """Name of a case -> what is in the table of it."""
    if not TABLE.exists():
        return {}
    parts = re.split(r"^# (.+)\n", TABLE.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))


def test_the_table_has_every_case_once_and_is_long_enough() -> None:
    names = [case["name"] for case in CASES]
    assert len(set(names)) == len(names) >= LEAST
    if not os.environ.get("REFRESH_GOLDEN"):
        assert list(expected()) == names


OF_COMMANDS = [case for case in CASES if "run" in case]
OF_REQUESTS = [case for case in CASES if "request" in case]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return make_cli(tmp_path, monkeypatch, capsys)


@pytest.fixture
def ports() -> Iterator[dict[str, str]]:
    """One that is in use, and one that is not."""
    with socket.create_server(("127.0.0.1", 0)) as busy, socket.create_server(("127.0.0.1", 0)) as free:
        free.close()
        yield {"{busy}": str(busy.getsockname()[1]), "{free}": _port_of(free, busy)}


def _port_of(free: socket.socket, busy: socket.socket) -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


@pytest.mark.parametrize("case", OF_COMMANDS, ids=lambda case: case["name"])
def test_a_command(cli: Cli, ports: dict[str, str], case: dict[str, Any]) -> None:
    prepare(cli, case.get("files", {}))
    arguments = [filled(word, ports) for word in case["run"]]
    if case.get("process"):
        told = subprocess.run(
            [sys.executable, "-m", "penstock", *arguments],
            cwd=cli.folder,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        status, out, err = told.returncode, told.stdout, told.stderr
    else:
        status, out, err = cli(*arguments)
    text = shown(out + err, cli.folder, ports)
    lines = [line.removeprefix("penstock: ") for line in text.splitlines() if line.startswith("penstock: ")]
    assert status in (1, 2, 3), text
    assert lines, text
    hold(lines, out + err)
    command = " ".join(
        ["penstock", *(word if word.strip() and " " not in word else repr(word) for word in case["run"])]
    )
    compare(case["name"], f"$ {command}\n{text.rstrip()}\n[{status}]")


@pytest.mark.parametrize("guarded", [False, True], ids=["open", "guarded"])
async def test_requests(tmp_path: Path, guarded: bool) -> None:
    model = '[hosts.box]\ntype = "openai"\nurl = "http://127.0.0.1:9/v1"\nmodel = "m"\nserves = ["chat"]\n'
    async with serving(tmp_path, model, tokens=[token()[0]] if guarded else []) as served:
        for case in OF_REQUESTS:
            if case.get("guarded", False) is not guarded:
                continue
            method, _, path = case["request"].partition(" ")
            headers = {"Content-Type": "application/json", **case.get("headers", {})}
            answer = await served.http.request(method, path, content=case.get("body"), headers=headers)
            body = answer.json()
            error = body["error"]
            assert answer.status_code in range(400, 500), case
            remedy = error.get("remedy")
            line = error["message"] if remedy is None else f"{error['message']}; {remedy}"
            hold([f"{case['request']}: {line}"], answer.text)
            compare(case["name"], f"> {case['request']}\n{line}\n[{answer.status_code}]")


def prepare(cli: Cli, files: dict[str, str]) -> None:
    for name, text in files.items():
        if name == "make":
            cli.good("submit", "summarize", "{}", "--id", "there")
        elif name.startswith("-"):
            (cli.folder / name[1:]).unlink()
        elif name.startswith("+"):
            cli.file(name[1:], CONFIG + text)
        else:
            (cli.folder / name).parent.mkdir(exist_ok=True)
            cli.file(name, text)


def filled(word: str, ports: dict[str, str]) -> str:
    for name, port in ports.items():
        word = word.replace(name, port)
    return word


def shown(text: str, folder: Path, ports: dict[str, str]) -> str:
    """The same on every machine."""
    text = text.replace(str(folder.resolve()), "DIR").replace(str(folder), "DIR")
    for port in ports.values():
        text = re.sub(rf"\b{port}\b", "PORT", text)
    return text


def hold(lines: list[str], raw: str) -> None:
    """Each line says where and what to do; nothing is repeated that may be secret."""
    assert "Traceback" not in raw
    assert SECRET not in raw, raw
    for line in lines:
        assert PLACE.match(line) or TYPED.search(line), line
        assert REMEDY.search(line), line


def compare(name: str, entry: str) -> None:
    if not os.environ.get("REFRESH_GOLDEN"):
        assert entry == expected()[name]
        return
    known = expected() | {name: entry}
    order = [case["name"] for case in CASES]
    text = "".join(f"# {one}\n{known[one]}\n\n" for one in order if one in known)
    TABLE.write_text(text, "utf-8")
