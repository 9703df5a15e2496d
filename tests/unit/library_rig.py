"""What tests of the library share: a librarian with a folder of its own, real Chroma and real embeddings."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from penstock.council.library.librarian import GivenPassage, Librarian, Order, Place
from tests.endings import ENDINGS

TEXTS = {
    "pumps.md": [
        "The northern pump station starts its second pump when the level in the basin passes four metres.",
        "Bearings of the pumps are greased every 2,000 hours; part number XK-4471-B fits all of them.",
    ],
    "garden.md": [
        "Tomatoes want full sun and water at their roots, never on their leaves.",
        "Frost kills basil overnight; bring the pots indoors in October.",
    ],
    "café.md": [
        "Le café ferme à dix-huit heures, sauf le dimanche.",
        "数据库在每天凌晨三点备份到第二台服务器。",
    ],
}


class Shelves:
    """A collection in a folder, asked as the library's process asks it."""

    def __init__(self, folder: Path, **place: Any) -> None:
        self.folder = folder
        words = str(folder / "words.sqlite3")
        self.place = Place(
            **{"collection": "knowledge", "path": str(folder / "chroma"), "words": words} | place
        )
        self.librarian = Librarian()

    def ask(self, do: str, **order: Any) -> dict[str, Any]:
        return self.librarian.perform(Order(do=do, place=self.place, **order))

    def upsert(self, source: str, texts: Sequence[str], hash: str = "h1", **order: Any) -> int:
        first = order.pop("first", 0)
        passages = [GivenPassage(text, "", n) for n, text in enumerate(texts, first)]
        return int(self.ask("upsert", source=source, hash=hash, passages=passages, **order)["passages"])

    def fill(self, texts: Mapping[str, Sequence[str]] = TEXTS) -> None:
        for source, its in texts.items():
            self.upsert(source, its)

    def stock(self) -> None:
        """What `fill` makes of an empty folder, sooner: by a copy of one that was filled."""
        shutil.copytree(_filled(), self.folder, dirs_exist_ok=True)

    def search(self, query: str, top: int = 3, **order: Any) -> dict[str, Any]:
        return self.ask("search", query=query, top=top, **order)

    def found(self, query: str, top: int = 3) -> list[str]:
        return [passage["text"] for passage in self.search(query, top)["passages"]]

    def reopened(self, **place: Any) -> Shelves:
        """As a fresh process sees it."""
        self.librarian.close()
        fresh = Shelves(self.folder)
        fresh.place = msgspec.structs.replace(self.place, **place)
        return fresh


@cache
def _filled() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="penstock-shelves-"))
    ENDINGS.callback(shutil.rmtree, folder, ignore_errors=True)
    made = Shelves(folder)
    made.fill()
    made.librarian.close()
    return folder
