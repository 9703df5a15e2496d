"""How figures are told to people, wherever they are shown."""

from __future__ import annotations


def percent(share: float) -> str:
    return f"{share * 100:.0f} %" if share >= 0.0995 or share == 0 else f"{share * 100:.1f} %"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
