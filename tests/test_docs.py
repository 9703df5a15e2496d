"""The docs say everything there is and nothing that is not: settings, errors, reasons, commands, links.

The pages drawn from the code must be current (`python -m tools.generate_docs`); in the written ones every
name that a user can meet must be found.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args
from urllib.parse import unquote, urlsplit

import pytest

import penstock
from penstock import errors, lifecycle
from penstock.scheduling import messages
from tools import generate_docs

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"

WAIT_REASONS = (
    "dependency",
    "scheduled",
    "paused",
    "store-down",
    "gate:NAME",
    "lane:NAME",
    "host-down",
    "rate:HOST",
    "slots:HOSTS",
    "worker:HOST",
    "order",
    "dispatcher-down",
)

# What Penstock must do. A test that proves one of these names it in its own name or docstring.
REQUIREMENTS = {
    "A1": "all tasks of a batch are queued at once",
    "A2": "a gate acts on starting, driven by events",
    "A3": "a cap on what a family may run at once",
    "A4": "families are isolated",
    "A5": "a gate can look at another family",
    "A6": "every run has a timeline",
    "A7": "the original report run can be replayed",
    "A8": "one input × models × repeats from one short file",
    "A9": "real report runners, each with a time-out and tree kill",
    "B1": "many processes ask for an agent, one container is created",
    "B2": "the port cache is validated, and read without the lock",
    "B3": "cross-process locks with an owner",
    "B4": "agents answer over HTTP; a failing command is an error",
    "B5": "the folder queue works too",
    "B6": "agents on the command line",
    "B7": "agents in server mode",
    "B8": "200 parallel calls all succeed",
    "B9": "success rate, lock wait, container start and cache hits are measured",
    "B10": "warm pool, pooled connections, limits, locks across machines, WebSocket",
    "C1": "slots per host, several kinds per host, several hosts per kind",
    "C2": "priorities hold to the very start; nothing starves",
    "C3": "Beads as the queue",
    "C4": "the dispatcher never blocks, and names what tries to",
    "C5": "status per host, logs that name task, kind and host",
    "C6": "cloud fallback inside a budget",
    "C7": "capacity by units; slots can tune themselves",
    "C8": "the legacy dispatcher as a mode; nothing is left in progress",
    "C9": "runs as a service, idles below 1 % CPU",
    "C10": "a benchmark reproduces the tables",
    "D1": "council members asked in parallel",
    "D2": "retrieval from a collection, or none",
    "D3": "each answer tells success, time and failure",
    "D4": "synthesis by a chair, peer review, measured agreement",
    "D5": "quick, council and thorough modes",
    "D6": "questions as jobs with progress and cancel",
    "D7": "the model server dies mid-question: everybody fails cleanly",
    "D8": "parallel efficiency of at least 95 %",
    "D9": "CPU-bound work in spawn-safe processes",
    "E1": "every second of queue time has exactly one reason",
    "E2": "diagnose names the fault",
    "E3": "whatif predicts the gain",
    "E4": "an OpenAI-compatible front door",
    "E5": "slots that tune themselves, gates on live headroom",
    "E6": "PostgreSQL, standby dispatchers, Ray",
    "E7": "web board, top, metrics, traces, MCP",
    "E9": "a newcomer is never left in silence",
}


@cache
def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def table_names(text: str) -> set[str]:
    """What stands in backticks in the first cell of any table's row."""
    rows = re.findall(r"^\|([^|]*)\|", text, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


# ---- pages drawn from the code


def test_drawn_pages_are_current() -> None:
    stale = [path.relative_to(ROOT).as_posix() for path in generate_docs.stale_pages()]
    assert not stale, "run: .venv-dev/bin/python -m tools.generate_docs"


def test_state_diagram_has_every_step() -> None:
    arrows = re.findall(r"^ +(\w+) --> (\w+): (.+)$", page("design.md"), re.MULTILINE)
    drawn = {(source, step): target for source, target, steps in arrows for step in steps.split(", ")}
    assert drawn == {(str(s), step): str(target) for (s, step), target in lifecycle.STEPS.items()}


def test_error_tree_is_drawn_as_it_is() -> None:
    drawn = [(error.name, error.exit_status) for error in generate_docs.drawn_errors()]
    real = [
        (kind.__name__, None if issubclass(kind, errors.AttemptError) else kind.exit_status)
        for kind in generate_docs.error_classes()
    ]
    # The root's own status is that of a failed task; the drawing says what the number is instead.
    assert drawn[1:] == real[1:]
    assert drawn[0][0] == real[0][0]


def test_every_error_is_documented() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.PenstockError)
    }
    assert defined == table_names(page("reference/errors.md")) - {"Exception"}


def test_every_event_and_decision_is_documented() -> None:
    headings = re.findall(r"^### (\w+)$", page("reference/events.md"), re.MULTILINE)
    assert headings == [kind.__name__ for kind in (*get_args(messages.Event), *get_args(messages.Decision))]


def test_events_and_decisions_name_all_messages() -> None:
    defined = {
        name for name, value in vars(messages).items() if isinstance(value, type) and "_fields" in vars(value)
    }
    parts = {"Backlog", "Fault"}  # of Restored and of HostChange: they come in no other way
    told = {kind.__name__ for kind in (*get_args(messages.Event), *get_args(messages.Decision))}
    assert defined - parts == told


def test_the_index_leads_to_every_how_to() -> None:
    text = page("index.md")
    linked = {Path(target).name for target in re.findall(r"\]\(([^)#]*how-to/[^)#]+)", text)}
    assert linked >= {path.name for path in (DOCS / "how-to").glob("*.md")}
    assert all(f"penstock {command}" in text for command in ("loop", "watch", "serve", "systemd", "simulate"))


def test_the_readme_is_short_and_leads_on() -> None:
    """E9: how to start, what it guarantees, when not to use it, and where to read on."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 110
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == [
        "Install",
        "Quick start",
        "Any OpenAI client",
        "Python",
        "What it guarantees",
        "When not to use it",
        "Works with",
        "More",
    ]
    more = re.findall(r"\]\(([^)]+)\)", text.partition("## More")[2])
    assert len(more) == 6
    assert more[0] == "docs/index.md"


def test_every_command_is_documented() -> None:
    app = generate_docs.cli_app()
    headings = set(re.findall(r"^## (penstock.*)$", page("reference/cli.md"), re.MULTILINE))
    known = {" ".join(path) for path, _ in generate_docs.commands(app)} if app is not None else set()
    assert headings == known


# ---- written pages


def test_every_wait_reason_is_documented() -> None:
    """E1: the reasons a user meets are the reasons on the page, in their order of precedence."""
    rows = re.findall(r"^\| `([^`]+)` \|", page("reference/wait-reasons.md"), re.MULTILINE)
    assert tuple(rows) == WAIT_REASONS


def test_wait_reasons_are_those_of_the_code() -> None:
    from penstock.diagnosis import waits

    assert waits.REASONS == WAIT_REASONS


def test_every_finding_has_its_page() -> None:
    """E2: what it means, how it looks, where it was seen, how it is found, the remedy, an example."""
    from penstock.diagnosis.finders import FINDERS

    assert {path.stem for path in (DOCS / "findings").glob("*.md")} == {*FINDERS, "index"}
    for name in FINDERS:
        text = page(f"findings/{name}.md")
        assert text.startswith(f"# {name}\n"), name
        parts = re.findall(r"^\*\*(.+?)\*\*", text, re.MULTILINE)
        assert parts == ["On a timeline", "Where it was seen", "How it is found", "Not this", "Remedy"], name
        assert re.search(rf"^\$ penstock diagnose .*\n(.*\n)*?{name} \(", text, re.MULTILINE), (
            f"{name}: no example"
        )


def test_every_config_key_is_documented() -> None:
    from penstock.config import KEYS

    text = page("reference/config.md")
    named = set(re.findall(r"`([^`\n]+)`", text)) | set(re.findall(r"^#+ (\S+)$", text, re.MULTILINE))
    # A key may stand under the heading of its table, without the table's name.
    missing = [key for key in KEYS if key not in named and key.rpartition(".")[2] not in named]
    assert not missing


def test_every_public_name_is_documented() -> None:
    text = page("reference/python.md") + page("reference/errors.md")
    public = [name for name in getattr(penstock, "__all__", []) if not name.startswith("_")]
    assert not [name for name in public if not re.search(rf"\b{name}\b", text)]


def test_every_page_is_in_the_navigation() -> None:
    listed = set(
        re.findall(r"^\s+- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    )
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert there == listed


def test_every_decision_page_has_its_parts() -> None:
    for path in sorted((DOCS / "adr").glob("0*.md")):
        headings = re.findall(r"^## (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert headings == ["Context", "Decision", "Consequence"], path.name
        assert f"]({path.name})" in page("adr/index.md"), f"{path.name} is not in adr/index.md"


# ---- links


def pages() -> list[Path]:
    return [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md")), ROOT / "llms.txt"]


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def anchors(path: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", title.replace("`", "")).strip().lower().replace(" ", "-") for title in titles
    }


def broken_links(path: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(path.read_text(encoding="utf-8"))):
        link = urlsplit(target)
        if link.scheme or link.netloc:
            continue
        to = (path.parent / unquote(link.path)).resolve() if link.path else path
        if not to.exists() or (link.fragment and to.suffix == ".md" and link.fragment not in anchors(to)):
            yield target


def test_relative_links_lead_somewhere() -> None:
    assert not [f"{path.relative_to(ROOT)}: {link}" for path in pages() for link in broken_links(path)]


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    sample = tmp_path / "page.md"
    sample.write_text("# One two\n[a](#one-two) [b](page.md) `[c](code.md)` [d](https://example.com/x)\n")
    assert not list(broken_links(sample))
    sample.write_text("[a](gone.md) [b](#nowhere)\n")
    assert list(broken_links(sample)) == ["gone.md", "#nowhere"]


# ---- requirements


def named_requirements(source: str) -> set[str]:
    """The ids in the names and docstrings of tests: `test_c2_…`, or "C2" in the text."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found |= {i.upper() for i in re.findall(r"(?<=_)[a-e]\d{1,2}(?=_|$)", node.name)}
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found |= set(re.findall(r"\b[A-E]\d{1,2}\b", ast.get_docstring(node) or ""))
    return found


def test_named_requirements_exist() -> None:
    named = {
        path.relative_to(ROOT).as_posix(): named_requirements(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "tests").rglob("*.py"))
    }
    unknown = {path: ids - set(REQUIREMENTS) for path, ids in named.items() if ids - set(REQUIREMENTS)}
    assert not unknown


def test_an_unknown_requirement_is_found() -> None:
    assert named_requirements('def test_a12_x():\n    """See D77."""') == {"A12", "D77"}


# ---- what must not be in the files


def own_files() -> list[Path]:
    """What is tracked, or would be."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


# Written in pieces, or this file would name them itself.
PRIVATE = re.compile(
    r"(?<![\w.~$}])/(?:work|root)/|(?<![\w.~$}])/home/[a-z]|(?<![\w.~$}])/Users/[a-z]"
    r"|py" + r"pi\.org|python" + r"hosted\.org|test\.py" + r"pi|index[-_]" + r"url|npmjs\." + r"org",
    re.IGNORECASE,
)


def test_no_machine_paths_or_registries() -> None:
    found = []
    for path in own_files():
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if PRIVATE.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number} {line.strip()[:80]}")
    assert not found


@pytest.mark.parametrize(
    "line",
    [
        "cd /ro" + "ot/x",
        '"/wo' + 'rk/main"',
        "/ho" + "me/ada/x",
        "https://py" + "pi.org/simple",
        "extra-index-" + "url=",
    ],
)
def test_a_private_line_is_found(line: str) -> None:
    assert PRIVATE.search(line)


def test_registries_of_this_machine_are_not_named() -> None:
    names = (
        "PIP_INDEX" + "_URL",
        "UV_INDEX" + "_URL",
        "UV_DEFAULT_INDEX",
        "UV_INDEX",
        "PIP_EXTRA_INDEX" + "_URL",
    )
    hosts = {urlsplit(url).hostname or "" for name in names for url in os.environ.get(name, "").split()} - {
        ""
    }
    named = [
        f"{path.relative_to(ROOT)}: {host}"
        for path in own_files()
        for host in hosts
        if host in path.read_text(encoding="utf-8", errors="replace")
    ]
    assert not named


def test_the_page_says_which_panels_lane_and_host_narrow() -> None:
    def panels(some: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for one in some:
            yield one
            yield from panels(one.get("panels", []))

    narrowed: dict[str, set[str]] = {"lane": set(), "host": set(), "both": set(), "neither": set()}
    for panel in panels(json.loads((DOCS / "grafana" / "penstock.json").read_text())["panels"]):
        asked = " ".join(target.get("expr", "") for target in panel.get("targets", []))
        by_lane, by_host = "$lane" in asked, "$host" in asked
        if asked:
            name = "both" if by_lane and by_host else "lane" if by_lane else "host" if by_host else "neither"
            narrowed[name].add(panel["title"])
    text = (DOCS / "how-to" / "observe.md").read_text()
    for name, titles in narrowed.items():
        row = re.search(rf"^\| {name} \| (.*) \|$", text, re.MULTILINE)
        assert row is not None
        told = {
            (quoted or plain).strip() for quoted, plain in re.findall(r"`([^`]+)`|([^,`]+?)(?:, |$)", row[1])
        }
        assert told == titles
