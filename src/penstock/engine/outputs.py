"""A task's value as a file: there whole or not at all, and nowhere but inside the folder for outputs.

It is saved before the attempt is reported, so a task that is done has its file. One that could not be saved ends
as failed and keeps its value: what it took to make is not thrown away.
"""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from typing import Any

from penstock.answers import text_of
from penstock.config.outputs import OutputRules
from penstock.engine.whole_files import WholeFiles
from penstock.model import Outcome, Verdict


class Outputs:
    def __init__(self, rules: OutputRules) -> None:
        self._rules = rules
        self._files = WholeFiles(rules.root, rules.why_not)

    def kept(self, output: str, outcome: Outcome) -> Outcome:
        """The outcome when its value has been saved, or the failure to do so."""
        try:
            self._save(output, as_bytes(outcome.value))
        except OSError as error:
            what = error.strerror or str(error)
            return replace(
                outcome,
                verdict=Verdict.PERMANENT,
                error=f"it was done, but {output!r} could not be written: {what}; its value is kept, see "
                "`penstock show`",
            )
        return outcome

    def _save(self, output: str, content: bytes) -> None:
        parts = self._rules.parts(output)
        if parts is None:
            raise OSError(errno.EPERM, f"it is outside of {self._rules.root}")
        os.makedirs(self._rules.root, exist_ok=True)
        self._files.write(parts, content)


def as_bytes(value: Any) -> bytes:
    """Its text; anything that has none as JSON people can read."""
    text = text_of(value)
    return text.encode("utf-8", "surrogatepass") + (b"" if text.endswith("\n") else b"\n")
