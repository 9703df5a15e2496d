"""What tests measure, told at the end of the run, whether they pass or fail and in whatever process they ran.

What a test prints is shown where it fails only. A figure is no reason to fail: how long something takes is the
machine's matter too. So it is told, for who wants to compare.
"""

from __future__ import annotations

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


def _told(terminalreporter: pytest.TerminalReporter) -> Iterator[tuple[str, list[str]]]:
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.when == "call":
                lines = [str(told) for key, told in report.user_properties if key == _FIGURE]
                if lines:
                    yield report.nodeid, lines
