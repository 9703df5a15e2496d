"""A file of file+prompt runs as FPF has it → entries of a task file, for a `file_prompt` host.

    [{"id": "r1", "provider": "openai", "model": "gpt-4o", "file_a": "how.md", "file_b": "a.md", "out": "a.out.md"}]

`file_a` is the instructions, `file_b` the document, `out` the task's output; `overrides` go to the model. The `id`
is unique in its file at best, so it is not the task's: it stays in the payload and is the task's label. The
provider is left out: which host has a model is the config's to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.intake.documents import Document

KIND = "file_prompt"
_FILES = frozenset({"file_a", "file_b"})
_OURS = ("model", "kind", "lane", "priority", "timeout_s", "retries", "run")


def as_tasks(document: Document) -> Document:
    """The document with such runs as tasks; any other as it is."""
    data = document.data
    if not isinstance(data, list) or not data or not all(map(_is_run, data)):
        return document
    return document._replace(data=[_entry(one) for one in data])


def _is_run(one: object) -> bool:
    return isinstance(one, Mapping) and one.keys() >= _FILES and "payload" not in one


def _entry(one: Mapping[str, Any]) -> dict[str, Any]:
    """What is no field of a task stays in the payload, where the host says what it does not know."""
    ours = {name: one[name] for name in _OURS if one.get(name) is not None}
    left = {name: value for name, value in one.items() if name not in (*_OURS, "out", "provider")}
    entry = {"kind": KIND, **ours, "payload": left}
    return entry if one.get("out") is None else entry | {"output": one["out"]}
