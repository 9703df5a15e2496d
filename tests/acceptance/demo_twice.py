"""`penstock demo` told in both forms of one play: as text on stdout, then as JSON with the folders kept.

    python demo_twice.py FIGURES KEPT

The scenes take their time, so they are played once, by the first; the second gets what they came to and a copy of
what they left. Everything else of both commands is as it is for a person.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

from penstock.cli.demo import app
from penstock.demo import play, question, ways


class Once:
    """One act: what it came to, and the folders it left."""

    def __init__(self, act: Callable[..., Awaitable[Any]], left: Path) -> None:
        self._act = act
        self._left = left
        self._come_to: list[Any] = []

    async def __call__(self, where: Path | play.Options, *more: Any) -> Any:
        folder = where.folder if isinstance(where, play.Options) else where
        if self._come_to:
            shutil.copytree(self._left, folder, dirs_exist_ok=True)
        else:
            self._come_to.append(await self._act(where, *more))
            shutil.copytree(folder, self._left, dirs_exist_ok=True)
        return self._come_to[0]


def main(figures: Path, kept: str) -> None:
    with tempfile.TemporaryDirectory() as left:
        for module, name in ((play, "play"), (ways, "play_ways"), (question, "ask_model")):
            setattr(module, name, Once(getattr(module, name), Path(left) / name))
        app(["--quick"], standalone_mode=False)
        told = BytesIO()
        with redirect_stdout(TextIOWrapper(told, encoding="utf-8")) as out:
            app(["--quick", "--json", "--keep", kept], standalone_mode=False)
            out.flush()
            figures.write_bytes(told.getvalue())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
