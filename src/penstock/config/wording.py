"""How a wrong value is told in one line: what kind of thing it is, and which word was probably meant."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from penstock.config.keys import Bounds, shown

NOT_KNOWN = "the running dispatcher does not know it; restart it"

_MAX_CHOICES = 12


def quoted(word: object) -> str:
    """A word of the user's, fit for one line."""
    text = repr(str(word))
    return text if len(text) <= 80 else f"{text[:76]}…{text[0]}"


def some(words: Sequence[str], most: int) -> str:
    """A list of words, of which so many are told at most."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def kind_of(value: object) -> str:
    """What a value is, in the words of the file; numbers and truth values themselves."""
    match value:
        case None:
            return "nothing"
        case bool() | int() | float():
            return shown(value)
        case str():
            return "text" if value else "empty text"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "a table"
    return "a date or time" if type(value).__module__ == "datetime" else f"a {type(value).__name__}"


def kind_alone(value: object) -> str:
    """What a value is, and nothing of it: what a config holds may be a secret, also where it is wrong."""
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
    return kind_of(value)


def misfit(value: object, bounds: Bounds, *, whole: bool = False) -> str | None:
    """Why a value is no number within bounds, without repeating it; None for one that is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return kind_alone(value)
    if whole and not isinstance(value, int):
        return "a fraction"
    if bounds.hold(value):
        return None
    return "a larger one" if value > bounds.high else "a smaller one" if value <= bounds.low else "NaN"


def nearest(word: object, choices: Collection[str]) -> str:
    """The choice that was probably meant, or ""."""
    from difflib import get_close_matches

    text = str(word)[:128]
    begun = [choice for choice in choices if len(text) > 2 and choice.startswith(text)]
    if len(begun) == 1:  # "prio" is too short to look like "priority"
        return begun[0]
    slack = 2 + len(text) // 4  # measuring thousands of names is slow; most differ too much in length
    likely = [choice for choice in choices if abs(len(choice) - len(text)) <= slack]
    found = get_close_matches(text, likely, n=1, cutoff=0.6)
    if not found:
        folded = {choice.lower(): choice for choice in likely}
        found = [folded[match] for match in get_close_matches(text.lower(), folded, n=1, cutoff=0.6)]
    return found[0] if found else ""


def meant(word: object, choices: Collection[str], what: str = "known here") -> str:
    """The end of a message about a wrong word: the near one, or those there are."""
    if near := nearest(word, choices):
        return f"; did you mean {near!r}?"
    if not choices:
        return f"; {what}: none"
    some = sorted(choices)[:_MAX_CHOICES]
    more = f", … ({len(choices)})" if len(choices) > len(some) else ""
    return f"; {what}: {', '.join(some)}{more}"
