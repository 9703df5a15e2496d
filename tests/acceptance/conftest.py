"""Fixtures that any acceptance test may use: the container engine of this test run."""

from __future__ import annotations

from tests.acceptance.containers import container_engine

__all__ = ["container_engine"]
