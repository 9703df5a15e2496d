"""What the query of an address says, read with care: anybody may write anything there."""

from __future__ import annotations

_MOST_DIGITS = 18  # fits the store, and whatever else counts


def whole(text: str) -> int | None:
    """A whole number; None where it is none, or larger than anything here is."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else None
