"""Setting up: `init` finds model servers and writes a config for them; `check` tries everything in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import render
from penstock.cli.session import config_of, finish
from penstock.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.setup.checkup import Finding
    from penstock.setup.discovery import Found, Place

app = typer.Typer()

NOT_WELL = 1
_MARKS = {"well": "ok", "warning": "note", "wrong": "WRONG"}


@app.command(
    "init",
    epilog="\b\nExamples:\n"
    "  penstock init\n"
    "  penstock init --scan surtr --scan 192.168.1.20:8000\n"
    "  penstock init --dry-run",
)
def init(
    scan: Annotated[
        list[str] | None,
        typer.Option("--scan", metavar="HOST[:PORT]", help="Look at another machine too. May be repeated."),
    ] = None,
    elsewhere: Annotated[
        bool, typer.Option("--not-here", help="Look only where --scan says, not at this machine.")
    ] = False,
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE", help="The file to write.")
    ] = "penstock.toml",
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the file and write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> int:
    """Find model servers and write a penstock.toml for them.

    Looks for LM Studio, Ollama, vLLM and llama.cpp at their usual ports on this machine, and asks each for its
    models and its slots. Without any, the file has a small model that comes with Penstock.
    """
    from penstock.hosts.gguf import missing
    from penstock.setup.discovery import find, places_here
    from penstock.setup.draft import compose

    path = Path(out)
    if not dry_run and not force and path.exists():
        raise UsageError(f"{out} is there already; --force writes over it, --out names another")
    if elsewhere and not scan:
        raise UsageError("init: --not-here leaves nowhere to look; name machines with --scan")
    places = ([] if elsewhere else places_here()) + [place for text in scan or () for place in _places(text)]
    found = finish(find(places))
    lacks = [] if found else missing()
    text = compose(found, lacks)
    if not dry_run:
        from penstock.cli.files import replacing

        with replacing(path) as file:
            file.write(text.encode())
    if as_json:
        file_record = {"file": None if dry_run else str(path), "config": text}
        render.emit({"found": [server.as_record() for server in found], **file_record})
    elif dry_run:
        render.say(text.rstrip("\n"))
    else:
        _tell_found(found, out, lacks)
    return 0


def _places(text: str) -> list[Place]:
    """The places that --scan names: one port, or the usual ones."""
    from urllib.parse import urlsplit

    from penstock.setup.discovery import KINDS, Place

    wrong = UsageError(f"--scan: {text!r} must be HOST or HOST:PORT, such as surtr or 192.168.1.20:8000")
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise wrong from None
    if not host or parts.path or parts.query or parts.fragment or "@" in text or port == 0:
        raise wrong
    if not text.isprintable() or any(c.isspace() for c in text):
        raise wrong
    return [Place(host, kind.port) for kind in KINDS] if port is None else [Place(host, port)]


def _tell_found(found: Sequence[Found], out: str, lacks: Sequence[str]) -> None:
    for server in found:
        count = len(server.models) + len(server.embeddings)
        told = "wants a key" if server.wants_key else render.counted(count, "model")
        render.say(f"found {server.kind.title} at {server.place.url}: {told}")
    if found:
        render.say(f"wrote {out}; next: `penstock check`, then `penstock serve`")
    elif lacks:
        render.say("found no model server; start one, or name a machine with --scan HOST")
        render.say(f"wrote {out} without a host: the small model is not installed here; to have it:")
        for command in lacks:
            render.say(f"  {command}")
    else:
        render.say("found no model server; start one, or name a machine with --scan HOST")
        render.say(
            f"wrote {out} with a small model of its own; next: `penstock check`, then `penstock serve`"
        )


# ---- check


@app.command("check", epilog="\b\nExamples:\n  penstock check\n  penstock check --json | jq .ok")
def check(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Say whether the config works, and what to do where it does not.

    Tries every host and every probe, the store, the server's address, and a Ray cluster. Ends with 0 when all is
    well, 1 when something is not, be it the store, 2 when the config itself is wrong.
    """
    from penstock.setup.checkup import WRONG, examine

    try:
        config = config_of(context)
        findings = finish(examine(config))
    except ConfigError as error:
        if as_json:
            render.emit({"ok": False, "problems": list(error.problems), "findings": []})
        raise
    well = not any(finding.state == WRONG for finding in findings)
    if as_json:
        records = [finding.as_record() for finding in findings]
        problems = [f"{f.what} {f.name}: {f.detail}" for f in findings if f.state == WRONG]
        render.emit({"ok": well, "problems": problems, "findings": records})
    else:
        _tell_findings(findings)
    return 0 if well else NOT_WELL


def _tell_findings(findings: Sequence[Finding]) -> None:
    rows = [
        (_MARKS[f.state], f.what, f.name, "; ".join(part for part in (f.detail, f.takes) if part))
        for f in findings
    ]
    render.print_table(("", "what", "name", "detail"), rows, flexible="detail")
    wrong = sum(finding.state == "wrong" for finding in findings)
    render.say()
    notes = sum(finding.state == "warning" for finding in findings)
    if wrong:
        render.say(render.counted(wrong, "problem"))
    else:
        above = "note" if notes == 1 else f"{notes} notes"
        render.say(f"it works, but see the {above} above" if notes else "all is well")
