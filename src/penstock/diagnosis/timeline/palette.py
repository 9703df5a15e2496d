"""How waits and hosts look in every picture: a colour that colour-blind people can tell, a letter, a pattern.

Hosts take the colours of Okabe and Ito in order; waits are paler, patterned, and have a letter by what they wait
for. Waits for several things of one sort, such as the slots of two hosts, have the colour and the pattern of
the sort in shades and sizes, and a number after the letter. Nothing is told by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Look(NamedTuple):
    letter: str
    colour: str  # on a light ground
    dark: str  # on a dark one
    pattern: str  # of those that the pictures can draw
    terminal: str  # a colour of Rich
    tile: int = 6  # pixels of the pattern's tile


# By the first word of a reason; "" is a wait that nobody gave a reason for.
WAITS = {
    "dependency": Look("d", "#8073ac", "#a99bd6", "rising", "medium_purple"),
    "scheduled": Look("t", "#7a8aa0", "#9fb0c8", "dots", "light_steel_blue"),
    "paused": Look("p", "#6f6f6f", "#a5a5a5", "upright", "grey58"),
    "store-down": Look("b", "#7b1f5c", "#cf7fb0", "plus", "deep_pink4"),
    "gate": Look("g", "#a6611a", "#d99a55", "crossed", "dark_goldenrod"),
    "lane": Look("l", "#c57b00", "#edb04c", "falling", "orange3"),
    "host-down": Look("h", "#b2182b", "#f0707f", "level", "red3"),
    "rate": Look("r", "#01796f", "#4fc0b5", "plus", "dark_cyan"),
    "slots": Look("s", "#4a7fb0", "#86b8e6", "rising-thin", "steel_blue"),
    "worker": Look("k", "#5b8c2a", "#9ccc65", "dots", "chartreuse4"),
    "order": Look("o", "#8f8f8f", "#bdbdbd", "falling-thin", "grey70"),
    "dispatcher-down": Look("x", "#3d3d3d", "#dddddd", "checked", "white"),
    "": Look("w", "#9a9a9a", "#8a8a8a", "rising-thin", "grey62"),
}

# Light ground, dark ground, Rich.
HOSTS = (
    ("#0072b2", "#3b9fd8", "dodger_blue2"),
    ("#e69f00", "#f0b429", "orange1"),
    ("#009e73", "#2dbb90", "spring_green3"),
    ("#cc79a7", "#dd94bd", "pink3"),
    ("#56b4e9", "#7cc8f2", "sky_blue2"),
    ("#d55e00", "#ea7d2c", "dark_orange3"),
    ("#c9b800", "#f0e442", "yellow3"),
    ("#5a4fcf", "#9188ee", "slate_blue1"),
)
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def wait_looks(reasons: Iterable[str]) -> dict[str, Look]:
    """One for each reason, in order; a plug-in's reason of another name looks like one that is not known."""
    families: dict[str, list[str]] = {}
    for reason in dict.fromkeys(reasons):
        word = reason.partition(":")[0]
        families.setdefault(word if word in WAITS else "", []).append(reason)
    return {
        reason: _varied(WAITS[family], place, len(members))
        for family, members in families.items()
        for place, reason in enumerate(members)
    }


# How far towards black or white a colour goes: on a light ground, and on a dark one.
_SHADES = ((None, None), ((0, 0.45), (255, 0.45)), ((255, 0.4), (0, 0.4)), ((0, 0.7), (255, 0.7)))
_TILES = (6, 10, 4)


def _varied(family: Look, place: int, members: int) -> Look:
    """Twelve that differ; of more, the number after the letter still tells."""
    if members == 1:
        return family
    light, dark = _SHADES[place % len(_SHADES)]
    return family._replace(
        letter=f"{family.letter}{place + 1}",
        colour=family.colour if light is None else _mixed(family.colour, *light),
        dark=family.dark if dark is None else _mixed(family.dark, *dark),
        tile=_TILES[(place + place // len(_SHADES)) % len(_TILES)],
    )


def host_looks(hosts: Iterable[str]) -> dict[str, Look]:
    """One for each, in order. When the colours are used up they come again darker, then paler."""
    looks = {}
    for place, host in enumerate(hosts):
        light, dark, terminal = HOSTS[place % len(HOSTS)]
        toward = (None, 0, 255)[place // len(HOSTS) % 3]
        if toward is not None:
            light, dark = _mixed(light, toward, 0.4), _mixed(dark, toward, 0.4)
        looks[host] = Look(_LETTERS[place % len(_LETTERS)], light, dark, "solid", terminal)
    return looks


def _mixed(colour: str, toward: int, share: float) -> str:
    parts = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(part * (1 - share) + toward * share):02x}" for part in parts)
