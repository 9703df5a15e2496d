"""What tests measure and what was skipped, told at the end of the run, in whatever process it was.

What a test prints is shown where it fails only. A figure is no reason to fail: how long something takes is the
machine's matter too. So it is told, for who wants to compare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

Tell = Callable[[str], None]
_FIGURE = "figure"  # among what a report carries from one process to another


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Tell:
    """Takes a line with a figure."""
    return lambda line: record_property(_FIGURE, line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    told = dict(_told(terminalreporter))
    if told:
        terminalreporter.section("figures")
        for test, lines in told.items():
            terminalreporter.line(test)
            for line in lines:
                terminalreporter.line(f"  {line}")

    skipped = Counter(_reasons(terminalreporter))
    if skipped:
        terminalreporter.section("skipped")
        for reason, count in sorted(skipped.items(), key=lambda one: (-one[1], one[0])):
            terminalreporter.line(f"{count:>4}  {reason}")


def _reasons(terminalreporter: pytest.TerminalReporter) -> Iterator[str]:
    """Of each skipped test, or of each file that was left out as a whole."""
    for report in terminalreporter.stats.get("skipped", ()):
        told = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        yield " ".join(told.removeprefix("Skipped: ").split())


def _told(terminalreporter: pytest.TerminalReporter) -> Iterator[tuple[str, list[str]]]:
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.when == "call":
                lines = [str(told) for key, told in report.user_properties if key == _FIGURE]
                if lines:
                    yield report.nodeid, lines
