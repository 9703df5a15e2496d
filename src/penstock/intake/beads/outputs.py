"""Where an issue may have its result saved: the rules for outputs hold, below a root of its own.

Issues are written by whoever may write to the tracker, so what looks like a way around is refused even where it
would lead nowhere else: `..`, `~`, and backslashes, which other systems take for slashes.
"""

from __future__ import annotations

from pathlib import Path

from penstock.config import Config
from penstock.config.outputs import MAX_PATH, OutputRules, output_problem
from penstock.config.problems import quoted
from penstock.engine.whole_files import WholeFiles


class BadOutput(ValueError):
    """A path that may not be written to; the message tells why."""


class IssueOutputs:
    def __init__(self, config: Config, root: Path) -> None:
        self._rules = OutputRules(config, str(root), "beads.root")
        self._files = WholeFiles(self._rules.root, self._rules.why_not)

    def check(self, path: str) -> None:
        """BadOutput when it is no file that a result may be saved in."""
        if ".." in path.split("/") or path.startswith("~"):
            what = f"leads out of {self._rules.root}; give a path below it"
        elif "\\" in path:
            what = "has a backslash in it; write /"
        else:
            found = output_problem(path, self._rules)
            if found is None:
                return
            what = found.removeprefix(f"{quoted(path)} ")
        raise BadOutput(f"Output path {path[:MAX_PATH]!r} {what}")

    def save(self, path: str, content: bytes) -> str:
        """Write a result; its path below the root. BadOutput when that is not allowed or not possible."""
        self.check(path)
        parts = self._rules.parts(path)
        assert parts is not None, "checked"
        try:
            self._files.write(parts, content)
        except OSError as error:
            raise BadOutput(f"Output path {path!r} cannot be written: {error.strerror}") from None
        return "/".join(parts)
