"""Tokens on the set-up page: listed, made and revoked through the server, which checks that an admin does it.

A secret is shown once, in a dialog of whoever made it; it is in no other page and kept nowhere.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from nicegui.element import Element

from penstock.errors import UsageError
from penstock.model import PRIORITIES
from penstock.web.board.buttons import button, dialog
from penstock.web.board.elements import empty, section, tag
from penstock.web.board.forms import checkbox, field, form, select, submit
from penstock.web.board.frame import Visit
from penstock.web.board.tables import At, Code, Column, Row, table
from penstock.web.board.task_texts import Copy
from penstock.web.board.words import urgency

_SCOPES = {
    "submit": "submit: submit tasks and make calls",
    "read": "read: see everything, payloads and results too",
    "admin": "admin: pause, set slots, change any task, make and revoke tokens",
}
_COLUMNS = (
    Column("Token", heads=True),
    "Scopes",
    "Lane",
    Column("Priority", num=True),
    Column("Requests/min", num=True),
    Column("Most queued", num=True),
    "Made",
    Column("Revoke", unseen=True),
)


class Tokens:
    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._tokens: list[dict[str, Any]] = []
        self._part = section("Tokens", note="Who may come in, to do what, and how much of it.")
        if not visit.viewer.may("admin"):
            with self._part:
                tag(
                    "p", "Only an admin sees tokens: log in with one that has the scope admin.", class_="soft"
                )
            return
        with self._part:
            self._table = table("Tokens", _COLUMNS, hide_caption=True, tall=True)
            self._none = tag("div")
            with self._none:
                # Not by this page: the first token shuts it out before it could show the secret.
                empty(
                    "There is no token",
                    "Every program of this machine may come in, and no other. From the first token on everybody "
                    "needs one, this page too, so the first is made on the server's machine:",
                    "penstock token add NAME --scope submit,read,admin",
                )
            self._form()

    async def refresh(self) -> None:
        if self._visit.viewer.may("admin"):
            told = await self._visit.desk.api.get(self._visit.viewer, "/api/tokens")
            self._tokens = told["tokens"]
            self._show()

    def _show(self) -> None:
        self._table.show([self._row(one) for one in self._tokens])
        _hidden(self._table, not self._tokens)
        _hidden(self._making, not self._tokens)
        _hidden(self._none, bool(self._tokens))

    def _row(self, token: dict[str, Any]) -> Row:
        async def revoke() -> None:
            await self._revoke(token["name"])

        label = f"Revoke {token['name']}"
        return Row(
            [
                Code(token["name"]),
                ", ".join(token["scopes"]),
                token["lane"],
                token["priority"],
                token["requests_per_min"],
                token["max_queued"],
                At(token["created_at"]),
                lambda: button(label, revoke, kind="danger", confirm=self._warning(token)),
            ],
            key=token["name"],
        )

    def _warning(self, token: dict[str, Any]) -> str:
        others = [one for one in self._tokens if one["name"] != token["name"]]
        told = [
            f"Revoke {token['name']}? Whatever uses it is refused from then on, and what it has open is closed."
        ]
        if token["name"] == self._visit.viewer.name:
            told.append("It is the one you came in with: you are logged out.")
        if not others:
            told.append("It is the last one: nobody can come in until the server is started again.")
        elif "admin" in token["scopes"] and not any("admin" in one["scopes"] for one in others):
            told.append(
                "No other has the scope admin: tokens can then be made only by `penstock token add` on the "
                "server's machine."
            )
        return " ".join(told)

    async def _revoke(self, name: str) -> None:
        await self._visit.desk.api.delete(self._visit.viewer, f"/api/tokens/{quote(name, safe='')}")
        self._visit.notice("good", f"{name} is revoked.")
        self._tokens = [one for one in self._tokens if one["name"] != name]
        self._show()

    # ---- making one

    def _form(self) -> None:
        lanes = {"": "any lane", **{lane.name: lane.name for lane in self._visit.desk.config.plant.lanes}}
        levels = {"": "any priority", **{str(one): f"{urgency(one)}, at most" for one in PRIORITIES}}
        self._making = tag("details", class_="add-token")
        with self._making:
            tag("summary", "Make a token…")
            with form(self._add, class_="token-form"):
                self._name = field("Name", autocomplete="off", spellcheck="false", maxlength="64")
                with tag("fieldset"):
                    tag("legend", "It may")
                    self._scopes = {
                        scope: checkbox(words, scope != "admin") for scope, words in _SCOPES.items()
                    }
                self._lane = select("Lane", lanes, description="All that it submits goes there.")
                self._priority = select("Priority", levels, description="The most urgent its tasks may be.")
                self._rate = field(
                    "Requests a minute", kind="number", min="1", placeholder="as the server has it"
                )
                self._queued = field(
                    "Most queued", kind="number", min="1", placeholder="as the server has it"
                )
                submit("Make token")

    async def _add(self) -> None:
        self._name.say_error(None if self._name.value.strip() else "Give it a name, such as laptop.")
        scopes = [scope for scope, box in self._scopes.items() if box.value]
        if not self._name.value.strip():
            return
        if not scopes:
            raise UsageError("a token that may do nothing is of no use; tick what it may do")
        body = {
            "name": self._name.value.strip(),
            "scopes": scopes,
            "lane": self._lane.value or None,
            "priority": int(self._priority.value) if self._priority.value else None,
            "requests_per_min": _number(self._rate.value),
            "max_queued": None if not self._queued.value else int(_number(self._queued.value) or 0),
        }
        body = {name: value for name, value in body.items() if value is not None}
        made = await self._visit.desk.api.post(self._visit.viewer, "/api/tokens", body)
        secret = made.pop("secret")
        self._tokens = sorted([*self._tokens, made], key=lambda one: str(one["name"]))
        self._show()
        self._name.value = ""
        self._tell(made["name"], secret)

    def _tell(self, name: str, secret: str) -> None:
        """It is gone from the page when the dialog is closed."""

        def forget() -> None:
            told.delete()

        with self._visit.client.content, dialog(f"Token {name}", wide=True, on_close=forget) as told:
            tag("p", "This is its secret. Keep it now: it is not shown again, and kept nowhere.")
            tag("pre", secret, class_="code secret", tabindex="0", role="region", aria_label="Secret")
            Copy(secret, "the secret")
            with tag("div", class_="actions"):
                button("I have kept it", told.close, kind="main")
        told.open()


def _number(text: str) -> float | None:
    if not text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{text!r} is no number; write one, such as 60") from None


def _hidden(element: Element, hidden: bool) -> None:
    if hidden:
        element._props["hidden"] = True
    else:
        element._props.pop("hidden", None)
    element.update()
