"""Texts of anybody's, fit to be shown: their lines stay, what would steer a terminal or hide a sign does not."""

from __future__ import annotations

_JOINERS = "\u200c\u200d"  # within signs of several parts


def clean(text: str) -> str:
    text = text.replace("\r\n", "\n").expandtabs(4)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c == "\n" or c in _JOINERS or c.isprintable() else "�" for c in text)


def clean_line(text: str, most: int | None = None) -> str:
    text = " ".join(clean(text).split())
    return text if most is None or len(text) <= most else text[: most - 1] + "…"
