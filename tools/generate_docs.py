"""Writes the pages of docs/ that are drawn from the code, so that they cannot say something else.

    python -m tools.generate_docs            write them
    python -m tools.generate_docs --check    say which are not current; exit status 1 if any

The parts: the state diagram in design.md, the tables of errors and events, the commands with their options, the
findings and what `diagnose` prints of their examples.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, get_args

from penstock import errors, lifecycle
from penstock.model import State
from penstock.scheduling import messages
from tools import finding_examples

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"

BEGIN = "<!-- generated: {name} -->"
END = "<!-- end of generated part -->"


class Part(NamedTuple):
    """A stretch of a page that is drawn from the code, between two marks."""

    page: str
    name: str
    text: str


def parts() -> Iterator[Part]:
    yield Part("design.md", "states", state_diagram())
    yield Part("reference/errors.md", "errors", error_pages())
    yield Part("reference/events.md", "events", message_tables(messages.Event))
    yield Part("reference/events.md", "decisions", message_tables(messages.Decision))
    app = cli_app()
    if app is not None:
        yield Part("reference/cli.md", "commands", cli_page(app))
    yield Part("findings/index.md", "findings", finding_examples.finding_table())
    yield Part("how-to/diagnose.md", "report-run", finding_examples.example("stalled-loop"))
    for name in finding_examples.COMMANDS:
        yield Part(f"findings/{name}.md", "example", finding_examples.example(name))


# ---- states


def state_diagram() -> str:
    """lifecycle.STEPS as a mermaid diagram; steps between the same two states share an arrow."""
    arrows: dict[tuple[State, State], list[str]] = {}
    for (source, step), target in lifecycle.STEPS.items():
        arrows.setdefault((source, target), []).append(step)
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> queued: submit"]
    lines += [f"    {source} --> {target}: {', '.join(steps)}" for (source, target), steps in arrows.items()]
    lines += [f"    {state} --> [*]" for state in State if state in lifecycle.ENDED]
    return "\n".join([*lines, "```"])


# ---- errors


class DrawnError(NamedTuple):
    """One line of the tree at the top of errors.py."""

    name: str
    exit_status: int | None
    meaning: str


_BRANCH = re.compile(r"^[\s│├└─]*(?P<name>[A-Z]\w+)\s*(?P<status>\d)?\s*(?P<meaning>.*)$")


def drawn_errors() -> list[DrawnError]:
    tree = (errors.__doc__ or "").split("\n\n")[1]
    drawn = []
    for line in tree.splitlines():
        branch = _BRANCH.match(line)
        if branch is None:
            raise SystemExit(f"errors.py: cannot read this line of its tree: {line!r}")
        status = branch["status"]
        drawn.append(DrawnError(branch["name"], int(status) if status else None, branch["meaning"].strip()))
    return drawn


def error_classes() -> list[type[errors.PenstockError]]:
    def below(kind: type[errors.PenstockError]) -> Iterator[type[errors.PenstockError]]:
        yield kind
        for child in kind.__subclasses__():
            if child.__module__ == errors.__name__:
                yield from below(child)

    return list(below(errors.PenstockError))


def error_pages() -> str:
    meanings = {drawn.name: drawn.meaning for drawn in drawn_errors()}
    rows = ["| error | is a | exit status | means |", "|---|---|---|---|"]
    for kind in error_classes():
        parent = kind.__mro__[1].__name__
        parent = f"`{parent}`" if kind is not errors.PenstockError else "`Exception`"
        status = "" if issubclass(kind, errors.AttemptError) else str(kind.exit_status)
        rows.append(f"| `{kind.__name__}` | {parent} | {status} | {cell(meanings.get(kind.__name__, ''))} |")
    return "\n".join(rows)


# ---- events and decisions


def message_tables(union: Any) -> str:
    sections = []
    for kind in get_args(union):
        said = inspect.getdoc(kind) if "__doc__" in vars(kind) else None
        is_written = said is not None and not said.startswith(f"{kind.__name__}(")
        section = [f"### {kind.__name__}", "", *([said or "", ""] if is_written else [])]
        fields = kind.__annotations__
        if fields:
            section += ["| field | type |", "|---|---|"]
            section += [f"| `{name}` | `{type_name(of)}` |" for name, of in fields.items()]
        else:
            section += ["No fields."]
        sections.append("\n".join(section))
    return "\n\n".join(sections)


def type_name(annotation: Any) -> str:
    # A bar would end the cell of the table.
    return str(getattr(annotation, "__forward_arg__", annotation)).replace(" | ", " or ")


# ---- commands


def cli_app() -> Any | None:
    """The command line's app, or None where the project has none."""
    try:
        module = importlib.import_module("penstock.cli.app")
    except ModuleNotFoundError as missing:
        if missing.name != "penstock.cli.app":
            raise
        return None
    from typer.main import get_command

    return get_command(module.app)


def commands(command: Any, path: tuple[str, ...] = ("penstock",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its path, by name, groups before what is in them; hidden ones are left out."""
    yield path, command
    if hasattr(command, "list_commands"):
        context = command.context_class(command, info_name=path[-1])
        for name in sorted(command.list_commands(context)):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from commands(child, (*path, name))


def cli_page(app: Any) -> str:
    return "\n\n".join(command_section(path, command) for path, command in commands(app))


def command_section(path: tuple[str, ...], command: Any) -> str:
    section = [f"## {' '.join(path)}", "", "```", " ".join([*path, *usage(command)]), "```"]
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    if text:
        section += ["", text]
    shown = [p for p in command.params if not p.hidden and p.name != "help"]
    if shown:
        section += ["", "| argument or option | does |", "|---|---|"]
        section += [f"| {names} | {cell(said)} |" for names, said in map(parameter, shown)]
    children = [
        (child_path, child) for child_path, child in commands(command, path) if child_path[:-1] == path
    ]
    if children:
        section += ["", "| command | does |", "|---|---|"]
        section += [
            f"| [`{child_path[-1]}`](#{'-'.join(child_path)}) | {cell(first_line(child.help))} |"
            for child_path, child in children
        ]
    return "\n".join(section)


# Only what every version of Typer says the same way: the page must not change with an upgrade.


def usage(command: Any) -> Iterator[str]:
    if any(is_option(p) and p.name != "help" for p in command.params):
        yield "[OPTIONS]"
    for param in command.params:
        if not is_option(param):
            many = "..." if param.nargs != 1 and " " not in argument_name(param) else ""
            yield argument_name(param) + many if param.required else f"[{argument_name(param)}]{many}"
    if hasattr(command, "list_commands"):
        yield "COMMAND"


def parameter(param: Any) -> tuple[str, str]:
    names = [*param.opts, *param.secondary_opts] if is_option(param) else [argument_name(param)]
    notes = []
    if values := choices(param):
        notes.append("one of " + ", ".join(f"`{value}`" for value in values))
    default = param.default
    if is_option(param) and isinstance(default, (int, float, str)) and default not in ("", False, True):
        notes.append(f"default `{getattr(default, 'value', default)}`")
    if is_option(param) and param.required:
        notes.append("required")
    said = (param.help or "") + (f" ({'; '.join(notes)})" if notes else "")
    return ", ".join(f"`{name}`" for name in names), said.strip()


def is_option(param: Any) -> bool:
    return bool(param.param_type_name == "option")


def argument_name(param: Any) -> str:
    return str(param.metavar or param.name.upper())


def choices(param: Any) -> list[str]:
    described = getattr(param, "type_descriptor", None)
    of = described.annotation if described is not None else param.type
    if inspect.isclass(of) and issubclass(of, Enum):
        return [str(member.value) for member in of]
    return [str(getattr(choice, "value", choice)) for choice in getattr(of, "choices", ())]


def first_line(text: str | None) -> str:
    return inspect.cleandoc(text or "").partition("\n\n")[0].replace("\n", " ")


# ---- pages


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def placed(page: str, part: Part) -> str:
    """The page with the part between its marks."""
    begin = BEGIN.format(name=part.name)
    if page.count(begin) != 1 or END not in page.partition(begin)[2]:
        raise SystemExit(f"docs/{part.page}: needs one {begin} followed by {END}")
    head, _, rest = page.partition(begin)
    tail = rest.partition(END)[2]
    return f"{head}{begin}\n\n{part.text}\n\n{END}{tail}"


def stale_pages() -> dict[Path, str]:
    """What the pages that are not current should read."""
    wanted: dict[Path, str] = {}
    for part in parts():
        path = DOCS / part.page
        wanted[path] = placed(wanted.get(path) or path.read_text(encoding="utf-8"), part)
    return {path: text for path, text in wanted.items() if path.read_text(encoding="utf-8") != text}


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the pages of docs/ that are drawn from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; say which pages are not current")
    check = parser.parse_args().check
    stale = stale_pages()
    for path, text in stale.items():
        print(f"{path.relative_to(ROOT)}: {'not current' if check else 'written'}")
        if not check:
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
