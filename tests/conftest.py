"""What holds for the whole suite: which skips are allowed, that it does not matter how it was started
(tests/start.py), that examples may take long, and that what stays for the whole run is not looked through for
garbage again and again. What tests measure, and what was skipped, is told at the end (tests/figures.py).

With PENSTOCK_REQUIRE_ALL=1 a test that would be skipped fails: CI proves everything or says so.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.figures import pytest_terminal_summary, tell
from tests.start import forget_the_starter

__all__ = ["pytest_terminal_summary", "tell"]

forget_the_starter()

# Clusters of tests, and all who join them, are for this machine alone: a user's own token is nothing to them.
os.environ["RAY_AUTH_MODE"] = "disabled"

# On a busy machine an example is made or tried as slowly as it may be: that says nothing of what it proves.
# `make soak` tries as many of them as Hypothesis would.
settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=100 if os.environ.get("PENSTOCK_SOAK") else 50,
)
settings.load_profile("patient")

# Thousands of tests and all that they import stay until the end: what is looked for is what a test leaves.
gc.disable()

REQUIRE_ALL = os.environ.get("PENSTOCK_REQUIRE_ALL") == "1"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Function]) -> None:
    told = getattr(config, "workerinput", None)  # where xdist shares the tests out
    if told is not None:
        from tests.dealing import dealt

        items[:] = dealt(items, told["workercount"])


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    used = sys.modules.get("tests.endings")
    if used is not None:
        used.ENDINGS.close()


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"{report.nodeid}: {reason} (PENSTOCK_REQUIRE_ALL=1 allows no skips)"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    # A failure is shown by parsing its source. What is swept up meanwhile may be told as a failure too, inside of
    # that: Python 3.11 takes the one parse in the other for a defect, and the whole run would end there.
    gc.disable()
    try:
        report = yield
    finally:
        gc.enable()
    if REQUIRE_ALL:
        _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if REQUIRE_ALL:
        _refuse_skip(report)
    return report
