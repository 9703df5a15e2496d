"""Whether two claims about the same thing cannot both be true: one says no, or they have other figures.

Likeness of meaning does not see that: "is safe" and "is not safe" are about the same, and so are 5 mg and 50 mg.
Asked only of claims that are much alike. It sees what words show: the opposite in other words is not found.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from penstock.council.plan.words_alike import READ_ONCE, stems, words_of

_NEGATORS_LISTED = """
not no never none nor neither without cannot nothing nobody nowhere false incorrect wrong untrue nicht kein
keine keinen keinem keiner keines nie niemals ohne falsch pas jamais aucun aucune sans faux nunca jamás
ningún ninguna sin falso non mai senza nessun nessuna não nem sem нет не 不 没 没有
"""
_NEGATORS = frozenset(_NEGATORS_LISTED.split())
_NOT_NEGATING = re.compile(
    r"\b(?:not (?:only|just|merely|simply|necessarily)|whether or not|no (?:doubt|matter|(?:later|more|less) than)"
    r"|nicht nur|non seulement|no s[oó]lo|not to mention|last but not least|without (?:doubt|question))\b"
)
_OPPOSITES_LISTED = """
increase/decrease increases/decreases raise/lower raises/lowers rises/falls rise/fall higher/lower more/less
more/fewer faster/slower before/after above/below safe/unsafe safe/dangerous
legal/illegal possible/impossible allowed/forbidden allow/forbid enable/disable enabled/disabled
mutable/immutable synchronous/asynchronous cheaper/costlier cheap/expensive larger/smaller longer/shorter
better/worse best/worst hot/cold open/closed first/last maximum/minimum north/south east/west left/right
accept/reject gain/lose win/lose buy/sell positive/negative stronger/weaker required/optional older/newer
healthy/unhealthy reversible/irreversible
"""
# Each word with its opposite, by their stems; not those that deny by themselves, which would count twice.
_OPPOSITES = tuple(tuple(stems(word) for word in pair.split("/")) for pair in _OPPOSITES_LISTED.split())
_NUMBERS_LISTED = """
zero null/two zwei deux dos due/three drei trois tres tre/four vier quatre cuatro quattro
five fünf cinq cinco cinque/six sechs seis sei/seven sieben sept siete sette/eight acht huit ocho otto
nine neun neuf nueve nove/ten zehn dix diez dieci/eleven elf undici/twelve zwölf douze doce dodici
"""
_NUMBER_WORDS = {
    word: float(value + (value > 0))  # "one" is mostly no number
    for value, words in enumerate(_NUMBERS_LISTED.strip().replace("\n", "/").split("/"))
    for word in words.split()
}
_SCALES = {
    "thousand": 1e3,
    "million": 1e6,
    "millionen": 1e6,
    "millions": 1e6,
    "billion": 1e9,
    "trillion": 1e12,
}
# What is counted in, and after it each unit with how many of those it is.
_UNITS_LISTED = """
g: mg=1e-3 milligram=1e-3 milligrams=1e-3 g=1 gram=1 grams=1 kg=1e3 kilogram=1e3 kilograms=1e3 kilo=1e3 kilos=1e3
g: µg=1e-6 mcg=1e-6 t=1e6 ton=1e6 tons=1e6 tonne=1e6 tonnes=1e6
m: nm=1e-9 mm=1e-3 cm=1e-2 m=1 metre=1 metres=1 meter=1 meters=1 km=1e3 kilometre=1e3 kilometres=1e3
m: kilometer=1e3 kilometers=1e3 mile=1609.344 miles=1609.344 ft=0.3048 feet=0.3048
s: ms=1e-3 millisecond=1e-3 milliseconds=1e-3 s=1 sec=1 second=1 seconds=1 sekunden=1 min=60 minute=60 minutes=60
s: minuten=60 h=3600 hour=3600 hours=3600 stunden=3600 day=86400 days=86400 tage=86400 week=604800 weeks=604800
year: year=1 years=1 jahre=1 jahren=1 ans=1 años=1 anni=1
month: month=1 months=1 monate=1 mois=1 meses=1
byte: b=1 byte=1 bytes=1 kb=1e3 mb=1e6 gb=1e9 tb=1e12 kib=1024 mib=1048576 gib=1073741824
litre: ml=1e-3 l=1 litre=1 litres=1 liter=1 liters=1
percent: %=1 percent=1 prozent=1
celsius: °c=1 celsius=1
fahrenheit: °f=1 fahrenheit=1
usd: $=1 usd=1 dollar=1 dollars=1
eur: €=1 eur=1 euro=1 euros=1
watt: w=1 watt=1 watts=1 kw=1e3 mw=1e6 gw=1e9
volt: v=1 volt=1 volts=1 kv=1e3
"""
_UNITS: dict[str, tuple[str, float]] = {
    unit.partition("=")[0]: (line.partition(": ")[0], float(unit.partition("=")[2]))
    for line in _UNITS_LISTED.strip().split("\n")
    for unit in line.partition(": ")[2].split()
}
_QUANTITY = re.compile(
    r"(?P<before>[$€])?\s?(?<![\w.])(?P<number>-?\d+(?:[.,]\d+)*)(?:\s?(?P<scale>thousand|million(?:s|en)?|billion"
    r"|trillion)\b)?(?:[\s-]?(?P<unit>%|°\s?[CF]\b|[^\W\d_]+))?",
    re.IGNORECASE,
)
_NEAR = 0.02  # "about 300,000 km/s" is no other figure than 299,792
_SAME_SUBJECT = 0.5  # of their words, before a missing "not" means the opposite


class Quantity(NamedTuple):
    value: float
    unit: str  # "": a bare number


def contradict(one: str, other: str) -> bool:
    """Of two claims that are much alike."""
    if _figures_differ(quantities(one), quantities(other)):
        return True
    return _says_no_once(one, other) and _common(one, other) >= _SAME_SUBJECT


def doubtful(one: str, other: str) -> bool:
    """One of them says no, though not clearly to the same: then they neither agree nor contradict for sure."""
    return _says_no_once(one, other)


# ---- no


def _says_no_once(one: str, other: str) -> bool:
    """Whether one of them denies, or has the opposite word, and the other does not."""
    return (_noes(one) + _noes(other) + _opposites(one, other)) % 2 == 1


@lru_cache(maxsize=READ_ONCE)
def _noes(text: str) -> int:
    told = _NOT_NEGATING.sub(" ", text.casefold().replace("’", "'"))
    return sum(word in _NEGATORS or word.endswith("n't") for word in words_of(told))


def _opposites(one: str, other: str) -> int:
    mine, theirs = stems(one), stems(other)
    only_mine, only_theirs = mine - theirs, theirs - mine
    # One is enough: "more/less" and "more/fewer" are the same difference.
    return int(
        any(
            (left <= only_mine and right <= only_theirs) or (right <= only_mine and left <= only_theirs)
            for left, right in _OPPOSITES
        )
    )


def _common(one: str, other: str) -> float:
    """How much of the shorter one's subject the other has as well."""
    mine, theirs = (stems(text) - _NEGATORS for text in (one, other))
    fewest = min(len(mine), len(theirs))
    return len(mine & theirs) / fewest if fewest else 1.0


# ---- figures


@lru_cache(maxsize=READ_ONCE)
def quantities(text: str) -> frozenset[Quantity]:
    found = {_quantity(match) for match in _QUANTITY.finditer(text)}
    words = words_of(text)
    for at, word in enumerate(words):
        if word in _NUMBER_WORDS:
            following = words[at + 1] if at + 1 < len(words) else ""
            scale = _SCALES.get(following, 1.0)
            base, factor = _UNITS.get(
                words[at + 2] if scale > 1 and at + 2 < len(words) else following, ("", 1.0)
            )
            found.add(Quantity(_NUMBER_WORDS[word] * scale * factor, base))
    return frozenset(found)


def is_figure(word: str) -> bool:
    """In small letters: 5, five, million."""
    return word[0].isdigit() or word in _NUMBER_WORDS or word in _SCALES


def is_unit(word: str) -> bool:
    return word in _UNITS


def _quantity(match: re.Match[str]) -> Quantity:
    value = _number(match["number"]) * _SCALES.get((match["scale"] or "").casefold(), 1.0)
    unit = (match["before"] or match["unit"] or "").casefold().replace(" ", "")
    base, factor = _UNITS.get(unit, ("", 1.0))
    return Quantity(value * factor, base)


def _number(text: str) -> float:
    """Commas and dots as they are written: 1,000.5 and 1.000,5, 3.14 and 3,14."""
    if "," in text and "." in text:
        decimal = max(text.rfind(","), text.rfind("."))
        whole = re.sub(r"[.,]", "", text[:decimal])
        return float(f"{whole}.{re.sub(r'[.,]', '', text[decimal + 1 :])}")
    mark = "," if "," in text else "."
    groups = text.split(mark)
    is_grouped = (
        len(groups) > 1 and all(len(group) == 3 for group in groups[1:]) and groups[0].strip("-0") != ""
    )
    if len(groups) > 2 or (is_grouped and mark == ","):
        return float("".join(groups))
    return float(text.replace(",", "."))


def _figures_differ(one: frozenset[Quantity], other: frozenset[Quantity]) -> bool:
    """Whether there is a unit that both count in, with nothing in common."""
    for unit in {quantity.unit for quantity in one} & {quantity.unit for quantity in other}:
        mine = [quantity.value for quantity in one if quantity.unit == unit]
        theirs = [quantity.value for quantity in other if quantity.unit == unit]
        if not any(_is_same(a, b, exact=not unit) for a in mine for b in theirs):
            return True
    return False


def _is_same(one: float, other: float, *, exact: bool) -> bool:
    if exact and one.is_integer() and other.is_integer():  # years and counts
        return one == other
    return abs(one - other) <= _NEAR * max(abs(one), abs(other))
