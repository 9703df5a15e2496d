"""Fields that keep what is typed in the browser, and tell Python of it.

    prompt = field("Question", kind="multiline", on_input=count_words)
    lane = select("Lane", {"": "any", "web": "web"}, on_change=refresh)
    button("Ask", lambda: ask(prompt.value, lane.value), kind="main")

Each has `value`, as last told by the browser, which may be set; and `say_error("why")`, with None to take it back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from nicegui.element import Element
from nicegui.events import GenericEventArguments

from penstock.web.board.notices import attempted

_FILES = Path(__file__).parent / "files"
Value = TypeVar("Value")
Handler = Callable[..., Any]  # of the value, or of nothing


class Control(Element, Generic[Value]):
    """What fields have in common: a label, a value, what is wrong with it."""

    def __init__(self, label: str, value: Value, shared: Mapping[str, Any]) -> None:
        super().__init__()
        self._value = value
        self._props["label"] = label
        self._props["value"] = value
        self._props["turn"] = 0
        for name in ("description", "hide_label", "disabled"):
            if shared.get(name) is not None:
                self._props[name] = shared[name]
        self._hears("change", shared.get("on_change"))

    @property
    def value(self) -> Value:
        return self._value

    @value.setter
    def value(self, value: Value) -> None:
        self._value = value
        self._props["value"] = value
        self._props["turn"] += 1
        self.update()

    def say_error(self, why: str | None) -> None:
        if self._props.get("error") != why:
            self._props["error"] = why
            self.update()

    def enable(self, able: bool = True) -> None:
        self._props["disabled"] = not able
        self.update()

    def _hears(self, event: str, handler: Handler | None) -> None:
        wants_value = handler is not None and bool(_parameters(handler))

        async def heard(told: GenericEventArguments) -> None:
            self._value = told.args
            if handler is not None:
                await attempted(self.client, handler, *([told.args] if wants_value else []))

        self.on(event, heard)


def _parameters(handler: Handler) -> Sequence[str]:
    return list(inspect.signature(handler).parameters)


class Field(Control[str], component=_FILES / "field.js"):
    pass


class Select(Control[str], component=_FILES / "select.js"):
    def offer(self, options: Mapping[str, str] | Sequence[str], value: str | None = None) -> None:
        """Other options; the value is kept where it is still one of them."""
        self._props["options"] = _options(options)
        known = [one for one, _ in self._props["options"]]
        wanted = self._value if value is None else value
        self.value = wanted if wanted in known else (known[0] if known else "")


class Checkbox(Control[bool], component=_FILES / "checkbox.js"):
    pass


class Slider(Control[float], component=_FILES / "slider.js"):
    pass


def field(
    label: str,
    value: str = "",
    *,
    kind: str = "text",
    on_change: Handler | None = None,
    on_input: Handler | None = None,
    on_enter: Handler | None = None,
    options: Sequence[str] = (),
    description: str | None = None,
    hide_label: bool = False,
    pause_ms: int = 250,
    **attributes: Any,
) -> Field:
    """`kind` is an input's type (text, search, number, password, date…) or `multiline`. `on_input` hears after a
    pause in typing, `on_change` when the field is left or Enter is pressed, `on_enter` of Enter (with Ctrl where
    there are several lines). `options` are offered while typing. Attributes go to the input: placeholder, min…"""
    made = Field(label, value, {"description": description, "hide_label": hide_label, "on_change": on_change})
    made._props["kind"] = kind
    made._props["pause_ms"] = pause_ms
    made._props["options"] = list(options)
    made._props["attributes"] = attributes
    made._hears("input", on_input)
    if on_enter is not None:
        made._hears("enter", on_enter)
    return made


def select(
    label: str,
    options: Mapping[str, str] | Sequence[str],
    value: str | None = None,
    *,
    on_change: Handler | None = None,
    description: str | None = None,
    hide_label: bool = False,
) -> Select:
    """`options` are values with their words, or values that speak for themselves; the first is chosen."""
    offered = _options(options)
    first = offered[0][0] if offered else ""
    made = Select(
        label,
        first if value is None else value,
        {"description": description, "hide_label": hide_label, "on_change": on_change},
    )
    made._props["options"] = offered
    return made


def checkbox(
    label: str, value: bool = False, *, on_change: Handler | None = None, description: str | None = None
) -> Checkbox:
    return Checkbox(label, value, {"description": description, "on_change": on_change})


def slider(
    label: str,
    value: float,
    least: float,
    most: float,
    *,
    step: float = 1,
    unit: str = "",
    was: float | None = None,
    on_input: Handler | None = None,
    on_change: Handler | None = None,
    description: str | None = None,
) -> Slider:
    """`on_input` hears while it moves, a few times a second; `on_change` when it stops. `was`
    is shown beside it."""
    made = Slider(label, value, {"description": description, "on_change": on_change})
    for name, given in {"least": least, "most": most, "step": step, "unit": unit, "was": was}.items():
        made._props[name] = given
    made._hears("input", on_input)
    return made


def form(on_submit: Callable[[], Any], **attributes: Any) -> Element:
    """Fields and their button, which Enter presses: `with form(ask): field(…); submit("Ask")`."""
    made = Element("form")
    for attribute, value in attributes.items():
        if attribute == "class_":
            made.classes(value)
        else:
            made._props[attribute.rstrip("_").replace("_", "-")] = value

    async def submitted() -> None:
        await attempted(made.client, on_submit)

    made.on("submit.prevent", submitted, args=[])
    return made


def submit(label: str, kind: str = "main") -> Element:
    made = Element("button").classes(f"button {kind}")
    made._props["type"] = "submit"
    made._text = label
    return made


def _options(options: Mapping[str, str] | Sequence[str]) -> list[list[str]]:
    if isinstance(options, Mapping):
        return [[value, words] for value, words in options.items()]
    return [[value, value] for value in options]
