"""Parts of a page that change in place: Python says what is there, and the browser changes only what differs.

So what somebody has focused, selected or scrolled to stays as it is while the page follows. Nodes are plain values:
a text, or a tag with attributes and nodes inside; text is always text.

    sheet = Sheet(node("p", "Runs on ", link("fenrir", "/queue?host=fenrir"), " for ", elapsed(started_at)))
    sheet.show(node("p", "Done"))
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nicegui.element import Element

from penstock.web.board.elements import BASE
from penstock.web.board.looks import look_of
from penstock.web.board.words import pieces

Node = str | dict[str, Any]


class Sheet(Element, component=Path(__file__).parent / "files" / "sheet.js"):
    def __init__(self, *nodes: Node | None, class_: str = "") -> None:
        super().__init__()
        self._props["nodes"] = _there(nodes)
        if class_:
            self.classes(class_)

    def show(self, *nodes: Node | None) -> None:
        told = _there(nodes)
        if told != self._props["nodes"]:
            self._props["nodes"] = told
            self.update()


def node(tag: str, *inside: Node | None, **attributes: Any) -> Node:
    """`class_` and `aria_label` are written so; what is None is left out.

    `style` is a dict; `key` tells rows apart.
    """
    named = {
        name.rstrip("_").replace("_", "-"): value
        for name, value in attributes.items()
        if value is not None and value is not False
    }
    return {"t": tag, "a": named, "c": _there(inside)}


def link(text: str, path: str, **attributes: Any) -> Node:
    return node("a", text, href=BASE + path, **attributes)


def task_link(task_id: str, text: str = "") -> Node:
    return link(text or task_id, f"/tasks/{quote(task_id, safe='')}", class_="id")


def queue_link(text: str, **chosen: str) -> Node:
    """The queue, narrowed: `queue_link("fenrir", host="fenrir")`."""
    return link(
        text, "/queue?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in chosen.items())
    )


def prose(text: str | None) -> list[Node]:
    """A sentence in which commands stand between backticks: they are shown as code."""
    return [node("code", piece) if is_command else piece for is_command, piece in pieces(text or "")]


def moment(at: float) -> Node:
    return node("moment", at=at)


def elapsed(since: float, until: float | None = None, plus_s: float = 0.0) -> Node:
    """It ticks until there is an end; `plus_s` is what had been before."""
    return node("elapsed", since=since, until=until, plus=plus_s)


def badge(state: str, text: str | None = None) -> Node:
    look, sign = look_of(state)
    return node(
        "span", node("i", sign, aria_hidden="true"), node("span", text or state), class_=f"badge {look}"
    )


def facts(pairs: Sequence[tuple[str, Node | Sequence[Node] | None]], class_: str = "facts columns") -> Node:
    """Names and what they are; those without anything are left out."""
    shown = [(name, value) for name, value in pairs if value not in (None, "", [], ())]
    return node(
        "dl",
        *(
            node(
                "div",
                node("dt", name),
                node("dd", *(value if isinstance(value, list | tuple) else (value,))),
                key=name,
            )
            for name, value in shown
        ),
        class_=class_,
    )


def rows_of(caption: str, heads: Sequence[str], rows: Sequence[Node], *, class_: str = "") -> Node:
    """A table in a box of its own; a head that begins with ">" is above figures."""
    cells = [
        node("th", head.lstrip(">"), scope="col", class_="num" if head[:1] == ">" else None) for head in heads
    ]
    table = node(
        "table",
        node("caption", caption, class_="unseen"),
        node("thead", node("tr", *cells)),
        node("tbody", *rows),
    )
    return node("div", table, class_=f"table {class_}".strip(), role="region", aria_label=caption, tabindex=0)


def _there(nodes: Sequence[Node | None]) -> list[Node]:
    return [one for one in nodes if one is not None]
