"""Plain HTML from Python: native elements, which keyboards and screen readers know.

NiceGUI's own widgets are not used: their templates are compiled in the browser, which the policy forbids. Text is
always text here; there is no way to put markup in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui.element import Element


def tag(name: str, text: str | None = None, **attributes: Any) -> Element:
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
