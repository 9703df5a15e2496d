"""Plain HTML from Python: native elements, which keyboards and screen readers know.

NiceGUI's own widgets are not used: their templates are compiled in the browser, which the policy forbids. Text is
always text here; there is no way to put markup in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui.element import Element

from penstock.diagnosis.timeline.palette import WAITS
from penstock.web.board.looks import look_of
from penstock.web.board.words import pieces

BASE = "/board"  # where the server shows the board; paths of pages are below it


def tag(name: str, /, text: str | None = None, **attributes: Any) -> Element:
    """An element; `class_` and `aria_label` are written so. An attribute that is None is left out."""
    made = Element(name)
    for attribute, value in attributes.items():
        if value is None or value is False:
            continue
        if attribute == "class_":
            made.classes(value)
        else:
            made._props[attribute.rstrip("_").replace("_", "-")] = (
                value  # as they are: `props()` parses its text
            )
    if text is not None:
        made._text = text
    return made


def inside(parent: Element, make: Callable[..., Element], *args: Any, **how: Any) -> Element:
    with parent:
        return make(*args, **how)


def prose(name: str, /, text: str, **attributes: Any) -> Element:
    """A sentence in which commands stand between backticks: they are shown as code."""
    made = tag(name, **attributes)
    with made:
        for is_command, piece in pieces(text):
            tag("code" if is_command else "span", piece)
    return made


def say(element: Element, text: str) -> None:
    """Another text in an element that `tag` made."""
    if element._text != text:
        element._text = text
        element.update()


def hide(element: Element, is_hidden: bool) -> None:
    """By the attribute, for everybody: NiceGUI's own way is a class of a stylesheet that is not loaded."""
    if element._props.get("hidden", False) is not is_hidden:
        element._props["hidden"] = is_hidden
        element.update()


def link(text: str, path: str, **attributes: Any) -> Element:
    """To a page of the board: `link("gpu", "/queue?host=gpu")`."""
    return tag("a", text, href=BASE + path, **attributes)


def section(title: str, *, level: int = 2, class_: str = "", note: str | None = None) -> Element:
    """A part of the page under its heading: `with section("Hosts"): …`."""
    made = tag("section", class_=f"part {class_}".strip())
    with made, tag("div", class_="part-head"):
        heading = tag(f"h{level}", title)
        if note:
            tag("p", note, class_="soft")
    heading._props["id"] = titled = f"{made.html_id}-title"
    made._props["aria-labelledby"] = titled
    return made


def badge(state: str, text: str | None = None, **attributes: Any) -> Element:
    """A state or condition, by sign and word and colour."""
    look, sign = look_of(state)
    made = tag("span", class_=f"badge {look}", **attributes)
    with made:
        tag("i", sign, aria_hidden="true")
        tag("span", text or state)
    return made


def code_block(text: str, *, label: str = "Text", tall: bool = False) -> Element:
    """Long text as it is: it wraps, scrolls in a box of its own, and can be selected."""
    look = "code tall" if tall else "code"
    return tag("pre", text, class_=look, tabindex="0", role="group", aria_label=label)


def empty(title: str, what_to_do: str, command: str | None = None) -> Element:
    """Where there is nothing to show yet: what to do next, with the exact command."""
    made = tag("div", class_="empty")
    with made:
        tag("p", title, class_="empty-title")
        prose("p", what_to_do)
        if command is not None:
            with tag("p"):
                tag("code", command, class_="command")
    return made


def bar(value: float, most: float, *, label: str, look: str = "busy") -> Element:
    """How much of something is used: a strip with the figures beside it, read aloud as a whole."""
    share = min(1.0, max(0.0, value / most)) if most > 0 else 0.0
    made = tag(
        "span",
        class_=f"meter {look}",
        role="meter",
        aria_label=label,
        aria_valuenow=f"{value:g}",
        aria_valuemin="0",
        aria_valuemax=f"{most:g}",
        aria_valuetext=f"{value:g} of {most:g}",
    )
    with made:
        tag("i").style(f"width: {share * 100:.1f}%")
    return made


def figure(label: str, value: str, *, note: str | None = None, look: str = "") -> Element:
    """One number that matters, with its name."""
    made = tag("div", class_=f"figure {look}".strip())
    with made:
        tag("span", label, class_="figure-label")
        tag("span", value, class_="figure-value")
        if note:
            tag("span", note, class_="soft")
    return made


def wait_mark(reason: str) -> Element:
    """A wait reason in its colour everywhere, with its words: `slots:gpu`."""
    word = reason.partition(":")[0]
    made = tag("span", class_="wait")
    with made:
        tag("i", aria_hidden="true", class_="swatch").style(f"background: var(--wait-{_known(word)})")
        tag("span", reason or "no reason given")
    return made


def _known(word: str) -> str:
    return word if word in WAITS and word else "other"
