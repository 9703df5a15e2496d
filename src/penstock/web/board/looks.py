"""How states, waits and hosts look on every page: a sign, a word, and the colours of the timeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.diagnosis.timeline.palette import HOSTS, WAITS

# State or condition: (look in board.css, sign). Never by colour alone: the word and the sign tell it too.
STATES: Mapping[str, tuple[str, str]] = {
    "queued": ("waiting", "○"),
    "running": ("busy", "▶"),
    "done": ("good", "✓"),
    "failed": ("bad", "✕"),
    "cancelled": ("still", "⊘"),
    "blocked": ("bad", "◆"),
    "up": ("good", "●"),
    "well": ("good", "●"),
    "ready": ("good", "●"),
    "open": ("good", "●"),
    "down": ("bad", "✕"),
    "wrong": ("bad", "✕"),
    "closed": ("bad", "✕"),
    "paused": ("waiting", "‖"),
    "draining": ("waiting", "▽"),
    "warming": ("waiting", "△"),
    "starting": ("waiting", "△"),
    "stopped": ("still", "■"),
    "unknown": ("still", "?"),
}


def look_of(state: str) -> tuple[str, str]:
    return STATES.get(state, ("still", "·"))


def palette_css() -> str:
    """`--wait-gate`, `--host-0`: one variable for each, so that pages and pictures agree."""
    light = "".join(_lines(lambda look: look.colour, 0))
    dark = "".join(_lines(lambda look: look.dark, 1))
    return f':root {{\n{light}}}\n:root[data-theme="dark"] {{\n{dark}}}\n'


def _lines(colour: Callable[..., str], ground: int) -> list[str]:
    waits = [f"  --wait-{word or 'other'}: {colour(look)};\n" for word, look in WAITS.items()]
    hosts = [f"  --host-{place}: {host[ground]};\n" for place, host in enumerate(HOSTS)]
    return waits + hosts
