"""What tools/first_hour.sh runs: the commands of the first pages, as they are written there, and what they print.

Of a page, in its order:

- In a block of `console`, a line that begins with `$` is a command, and what follows is what it prints. `…` alone
  stands for any lines, and a line that ends in `…` for one that begins with the same word. Numbers, times and ids
  may differ.
- A block after a line that names a file and ends in a colon is that file.
- A block of `python` without a file is run.

`penstock serve` and `penstock work` go on until the page, or a line that begins with `^C`, ends them.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/quickstart.md")

# What a new machine has: what the pages ask for, and the POSIX utilities.
_PROGRAMS_LISTED = """
git make sh [ awk basename cat chmod cmp cp cut date dirname echo env expr false find grep head id
kill ln ls mkdir mktemp mv printf ps pwd rm rmdir sed sleep sort tail tee test touch tr true uname
uniq wc xargs
"""
_PORT = 8787  # of the pages
_PATIENCE_S = 900.0  # for one command, on a machine that has much else to do
_WIDE = 110
_STAYS = ("penstock serve", "penstock work")
# What `python -m asyncio` does with it.
_AWAITS = """\
import ast, asyncio, inspect, sys
made = eval(compile(open(sys.argv[1]).read(), sys.argv[1], "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
if inspect.iscoroutine(made):
    asyncio.run(made)
"""
_ANSWERS = "penstock ask"  # prints what a model says, which nobody can foretell
_KEPT = re.compile(r"(PIP|UV|SSL)_\w+|\w*CA_BUNDLE|\w+_proxy|\w+_PROXY|LANG|LC_\w+")
_DOWNLOADS = re.compile(r"(?:Resolved|Prepared|fetched).* in ((?:[\d.]+ ?(?:ms|s|m)\s*)+)$", re.MULTILINE)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0}


class File(NamedTuple):
    name: str
    text: str


class Command(NamedTuple):
    words: str
    prints: tuple[str, ...]


class Python(NamedTuple):
    code: str


class Ends(NamedTuple):
    """Ctrl-C for what goes on, and what that prints then."""

    prints: tuple[str, ...]


Step = File | Command | Python | Ends


def steps(page: str) -> Iterator[Step]:
    intro = ""
    for part in re.finditer(r"^```(\w*)\n(.*?)^```$|^([^\n]*\S[^\n]*)$", page, re.MULTILINE | re.DOTALL):
        language, text, line = part.groups()
        if text is None:
            intro = line
            continue
        named = re.search(r"`([\w.-]+\.\w+)`[^`]*:$", intro)
        if language == "console":
            yield from _commands(text)
        elif named is not None:
            yield File(named[1], text)
        elif language == "python":
            yield Python(text)
        intro = ""


def _commands(text: str) -> Iterator[Step]:
    for part in re.split(r"^(?=\$ |\^C)", text, flags=re.MULTILINE):
        first, *prints = part.rstrip().split("\n") if part.strip() else [""]
        while first.endswith("\\"):
            first = f"{first[:-1]}{prints.pop(0).strip()}"
        if first.startswith("$ "):
            yield Command(first[2:], tuple(prints))
        elif first.startswith("^C"):
            yield Ends(tuple(prints))


# ---- whether what is printed is what the page says

_SHAPES = (
    (r"\x1b\[[0-9;?]*[A-Za-z]", ""),
    (r"\S*/([\w.-]+\.db)\b", r"\1"),  # a path of the machine
    (r"\b(?:r-)?(?=\w*\d)[0-9a-z]{14,}\b", "ID"),
    (r"\b\d\d:\d\d:\d\d(?:\.\d+)?", "TIME"),
    (r"; it waited .*", "; it waited"),  # for what, depends on the machine
    (r"\bideal [\d.]+ \w+ \(.*\)", "ideal"),
    (r"\bsuch tasks (run|wait).*", r"such tasks \1"),
    (r"\bby process .*", "by process"),
    (r"\b\d+(?:[.,]\d+)*(?: ?(?:ms|s|m|h|%))?(?: ?\d+ ?s)?(?![\w.])", "N"),
    (r"[─━-]{3,}", "-"),
    (r"\s+", " "),
)


def shape(line: str) -> str:
    for pattern, instead in _SHAPES:
        line = re.sub(pattern, instead, line)
    return line.strip()


def difference(expected: Sequence[str], printed: Sequence[str]) -> str | None:
    """The first line that is not as the page has it; None when all is."""
    left = [line for line in printed if shape(line)]
    skips = False
    for line in (line for line in expected if line.strip()):
        if line.strip() == "…":
            skips = True
            continue
        place = next((n for n, one in enumerate(left) if _fits(line, one)), None)
        if place is None or (place > 0 and not skips):
            return f"the page has {line!r}, but it printed {left[0] if left else 'nothing more'!r}"
        del left[: place + 1]
        skips = False
    if left and not skips:
        return f"it also printed {left[0]!r}"
    return None


def _fits(expected: str, printed: str) -> bool:
    if expected.endswith("…"):
        return expected.split()[0] == shape(printed).split()[0]
    return shape(expected) == shape(printed)


# ---- doing it


class Mismatch(Exception):
    pass


class Newcomer:
    """A person with a terminal: commands one after the other, in one folder and environment."""

    def __init__(self, work: Path, home: Path, port: int) -> None:
        self.home, self._state = home, work / f"{home.name}.sh"
        self._log = work / f"{home.name}.log"
        self._goes_on: subprocess.Popen[bytes] | None = None
        self._read = 0
        self._port = port
        kept = {name: value for name, value in os.environ.items() if _KEPT.fullmatch(name)}
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        configs = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        for name, place in (
            ("PIP_CACHE_DIR", caches / "pip"),
            ("UV_CACHE_DIR", caches / "uv"),
            ("PIP_CONFIG_FILE", configs / "pip/pip.conf"),
            ("UV_CONFIG_FILE", configs / "uv/uv.toml"),
        ):
            if place.exists():
                kept.setdefault(name, str(place))
        kept |= {
            "HOME": str(home),
            "PATH": str(work / "bin"),
            "TERM": "xterm-256color",
            "COLUMNS": str(_WIDE),
        }
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in kept.items())
        self._state.write_text(f"{exports}cd {shlex.quote(str(home / 'penstock'))}\n")

    def does(self, step: Step, folder: Path) -> str:
        match step:
            case File(name, text):
                (self._folder() / name).write_text(text)
            case Python(code):
                (script := folder / "snippet.py").write_text(code)
                if not self._run(f"python -c {shlex.quote(_AWAITS)} {script}", 0).strip():
                    raise Mismatch("it printed nothing")
            case Ends(prints):
                self.stop()
                self._compare(prints, self._log.read_text()[self._read :])
            case Command(words, prints) if (program := words.partition("#")[0].strip()) in _STAYS:
                elsewhere = program == "penstock serve" and self._port != _PORT
                self._start(f"{program} --port {self._port}" if elsewhere else program)
                self._compare(prints, self._logged())
            case Command(words, prints):
                words = words.replace(str(_PORT), str(self._port))
                fails = any("failed" in line for line in prints)
                printed = self._run(words, 1 if fails else 0)
                if not words.startswith(_ANSWERS):
                    self._compare(prints, printed)
                elif not printed.strip():
                    raise Mismatch("there is no answer")
                if words.startswith("export OPENAI_API_KEY"):
                    self._call()
                return printed
        return ""

    def stop(self) -> None:
        """As Ctrl-C does."""
        if self._goes_on is not None:
            self._goes_on.send_signal(signal.SIGINT)
            try:
                self._goes_on.wait(_PATIENCE_S)
            finally:
                self._goes_on.kill()
                self._goes_on = None

    def _compare(self, prints: Sequence[str], printed: str) -> None:
        if prints and (found := difference(prints, printed.splitlines())) is not None:
            raise Mismatch(f"{found}\n{printed}")

    def _script(self, words: str) -> list[str]:
        state = shlex.quote(str(self._state))
        saved = f'{{ export -p; printf "cd %s\\n" "$PWD"; }} > {state}'
        return ["sh", "-c", f". {state}\n{words}\nstatus=$?\n{saved}\nexit $status"]

    def _folder(self) -> Path:
        return Path(self._run("pwd", 0).strip())

    def _run(self, words: str, status: int) -> str:
        """What it prints on a terminal; what it says beside that goes to stderr, here as there."""
        ours, its = pty.openpty()
        errors = self._state.with_suffix(".err")
        with errors.open("wb") as stderr:
            done = subprocess.Popen(self._script(words), stdin=subprocess.DEVNULL, stdout=its, stderr=stderr)
        os.close(its)
        said, until = b"", time.monotonic() + _PATIENCE_S
        try:
            while select.select([ours], [], [], max(0.0, until - time.monotonic()))[0]:
                if not (some := os.read(ours, 65536)):
                    break
                said += some
        except OSError:  # nobody writes any more
            pass
        finally:
            os.close(ours)
            if time.monotonic() >= until:
                done.kill()
        printed = said.decode(errors="replace").replace("\r\n", "\n")
        if done.wait(_PATIENCE_S) != status:
            raise Mismatch(f"exit status {done.returncode}\n{printed}{errors.read_text(errors='replace')}")
        if words.startswith("make "):
            printed += errors.read_text(errors="replace")
        return printed

    def _start(self, words: str) -> None:
        self.stop()
        with self._log.open("wb") as log:
            self._goes_on = subprocess.Popen(
                self._script(f"exec {words}"), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until = time.monotonic() + _PATIENCE_S
        while " ready " not in self._log.read_text():
            if self._goes_on.poll() is not None or time.monotonic() > until:
                raise Mismatch(f"it is not ready\n{self._log.read_text()}")
            time.sleep(0.05)

    def _logged(self) -> str:
        text = self._log.read_text()
        self._read = len(text)
        return text

    def _call(self) -> None:
        """What a program that calls OpenAI's API would do with these variables."""
        url, key = self._run('echo "$OPENAI_BASE_URL" "$OPENAI_API_KEY"', 0).split()
        body = {"model": "auto", "max_tokens": 8, "messages": [{"role": "user", "content": "Say hello."}]}
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        request = urllib.request.Request(  # noqa: S310 - to ourselves
            f"{url}/chat/completions", json.dumps(body).encode(), headers
        )
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:  # noqa: S310
            if not json.load(answer)["choices"][0]["message"]["content"]:
                raise Mismatch("the call was not answered")


def fill(folder: Path) -> None:
    """A PATH as on a new machine."""
    folder.mkdir()
    for name in _PROGRAMS_LISTED.split():
        if (program := shutil.which(name)) is not None:
            (folder / name).symlink_to(program)
    # No link: a virtual environment made through a link would be one of the link.
    python = getattr(sys, "_base_executable", sys.executable)
    (folder / "python3").write_text(f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n')
    (folder / "python3").chmod(0o755)


def clone(into: Path) -> None:
    """A clone of this folder, with what is not committed yet."""
    git = ("git", "-c", "safe.directory=*")
    subprocess.run([*git, "clone", "--quiet", str(ROOT), str(into)], check=True)
    words = [*git, "ls-files", "-z", "--modified", "--others", "--deleted", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True).stdout
    for name in {os.fsdecode(name) for name in listed.split(b"\0") if name}:
        (into / name).unlink(missing_ok=True)
        if (ROOT / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, into / name)


def downloads_s(printed: str) -> float:
    """Seconds that uv and pip needed to find and fetch packages, as they say themselves."""
    parts = (
        part for found in _DOWNLOADS.findall(printed) for part in re.findall(r"([\d.]+) ?(ms|s|m)", found)
    )
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def main(work: Path, limit_s: float, port: int) -> int:
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a background job ignores it, and so would what it starts
    fill(work / "bin")
    began = time.monotonic()
    fetching_s, answered_s = 0.0, None
    for number, page in enumerate(PAGES):
        (home := work / f"home-{number}").mkdir()
        if number == 0:
            clone(home / "penstock")
        else:  # installed once: `make install` of the next page finds all done
            (home / "penstock").symlink_to(work / "home-0" / "penstock")
        newcomer = Newcomer(work, home, port)
        try:
            for step in steps((ROOT / page).read_text(encoding="utf-8")):
                since = time.monotonic()
                try:
                    printed = newcomer.does(step, work)
                    words = str(step[0]).splitlines()[0] if step[0] else "^C"
                    print(f"{time.monotonic() - since:6.1f} s  {page}: {words}", flush=True)
                except Mismatch as found:
                    print(f"\n{page}: {step[0]}\n{found}", file=sys.stderr)
                    return 1
                if number == 0 and isinstance(step, Command):
                    fetching_s += downloads_s(printed) if step.words.startswith("make") else 0.0
                    if answered_s is None and step.words.startswith(_ANSWERS):
                        answered_s = time.monotonic() - began - fetching_s
        finally:
            newcomer.stop()
    if answered_s is None:
        print(f"{PAGES[0]} asks no model", file=sys.stderr)
        return 1
    print(f"from clone to the first answer: {answered_s:.1f} s, and {fetching_s:.1f} s of downloads")
    return 0 if answered_s <= limit_s else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
