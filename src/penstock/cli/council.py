"""The council: many members, one answer."""

from __future__ import annotations

import typer

from penstock.cli.app import Family

app = typer.Typer(
    cls=Family,
    help="The council: one question, many members, one honest answer.",
    epilog='\b\nExamples:\n  penstock council ask "Is the plan sound?"\n  penstock council ask - < question.txt',
    add_completion=False,
    rich_markup_mode=None,
)
