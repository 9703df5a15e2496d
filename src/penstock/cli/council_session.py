"""What the commands of `council` share: which council is meant."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import render

if TYPE_CHECKING:
    from penstock.config import Config
    from penstock.config.councils import Council

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
CouncilOption = Annotated[
    str | None, typer.Option("--council", metavar="NAME", help="Which council; else the only one.")
]


def chosen(config: Config, name: str | None) -> Council:
    """That council of the config, or the only one."""
    from penstock.council.choosing import EXAMPLE, council_named

    if not config.councils:
        where = "penstock.toml" if config.path is None else str(config.path)
        render.note(f"there is no council in {where}; add one, for example:")
        sys.stderr.write(f"\n{EXAMPLE}\n\n")
        raise typer.Exit(2)
    return council_named(config.councils, name, "name one with --council")
