"""What an ingest is told, how far it has come, and what came of it: the words between it and who shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.config.councils import Council, Retrieval
from penstock.council.library.chunks import By, Chunking
from penstock.council.library.documents import Aside
from penstock.council.library.ingest import Plan


@dataclass(frozen=True, slots=True)
class Options:
    chunking: Chunking
    name: str | None = None  # of the folder in its collection; None: its own
    dry_run: bool = False
    may_empty: bool = False  # remove everything where the folder holds nothing any more
    payload_limit_bytes: int = 16 * 1024 * 1024


@dataclass(slots=True)
class Progress:
    """How far it has come, for whoever shows it. Bytes are those of files."""

    phase: str = "looking"  # waiting: for what is under way already; asking: the library; working
    run: str = ""
    plan: Plan = field(default_factory=Plan)
    files: int = 0  # to be put in
    files_done: int = 0
    passages: int = 0
    bytes: int = 0
    bytes_done: int = 0
    failed: int = 0


@dataclass(slots=True)
class Ingested:
    """What came of it. `passages` are those that were put in, not all that the collection holds."""

    council: str
    collection: str
    folder: str
    name: str
    dry_run: bool
    plan: Plan
    run: str = ""
    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    passages: int = 0
    failed: list[Aside] = field(default_factory=list)
    left_out: list[Aside] = field(default_factory=list)
    notes: list[Aside] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)  # of other folders, to be made anew by ingesting those
    stopped: bool = False  # somebody interrupted it
    gave_up: bool = False  # so many files failed, and not one was put in, that the rest was left
    took_s: float = 0.0

    def as_record(self) -> dict[str, Any]:
        """As JSON: sources by what became of them, in a dry run what would."""
        plan = self.plan
        return {
            "council": self.council,
            "collection": self.collection,
            "folder": self.folder,
            "name": self.name,
            "run": self.run or None,
            "dry_run": self.dry_run,
            "added": list(plan.add) if self.dry_run else self.added,
            "changed": list(plan.change) if self.dry_run else self.changed,
            "removed": list(plan.remove) if self.dry_run else self.removed,
            "unchanged": list(plan.unchanged),
            "kept": list(plan.kept),
            "passages": self.passages,
            "failed": [_record(one) for one in self.failed],
            "left_out": [_record(one) for one in self.left_out],
            "notes": [_record(one) for one in self.notes],
            "elsewhere": self.elsewhere,
            "stopped": self.stopped,
            "gave_up": self.gave_up,
            "took_s": round(self.took_s, 3),
        }


def _record(one: Aside) -> dict[str, str]:
    return {"source": one.source, "reason": one.reason}


def make_options(
    council: Council,
    payload_limit_bytes: int,
    *,
    by: str = By.WORDS,
    chunk_words: int | None = None,
    overlap_words: int | None = None,
    name: str | None = None,
    dry_run: bool = False,
    may_empty: bool = False,
) -> Options:
    """What is not given is the council's; shorter passages than its overlap have one in proportion."""
    retrieval = council.retrieval or Retrieval("")
    words = retrieval.chunk_words if chunk_words is None else chunk_words
    overlap = overlap_words
    if overlap is None:
        same = words == retrieval.chunk_words
        overlap = (
            retrieval.overlap_words if same else words * retrieval.overlap_words // retrieval.chunk_words
        )
    return Options(Chunking(By(by), words, overlap), name, dry_run, may_empty, payload_limit_bytes)
