"""What a page may load and run: files of this server, and the scripts that the server itself wrote into the page.

The nonce stands in the source of NiceGUI's template, never in what is put into it: whatever a user's text
manages to be, it has no nonce. Nothing on the board is compiled in the browser, so `eval` stays forbidden:
components have render functions, no templates, and no handler is sent as code.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path

import nicegui
from jinja2 import BaseLoader, Environment, TemplateNotFound
from nicegui import client as nicegui_client
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_TEMPLATES = Path(nicegui.__file__).parent / "templates"
_NONCE = "board_nonce"
# The widgets' library and its looks, which no page of ours has: half a megabyte, and a style to fight with.
_WIDGETS = re.compile(
    r"""<script [^>]*/static/(?:quasar|lang/)[^>]*></script>|@import url[^;]*;|@layer quasar .*?(?=</style>)""",
    re.DOTALL,
)


def policy(nonce: str) -> str:
    return (
        f"default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self' 'nonce-{nonce}'; "
        "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'; object-src 'none'"
    )


HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with none at all a form's origin would be told as "null"
    "cross-origin-opener-policy": "same-origin",
}


class _WithNonce(BaseLoader):
    """NiceGUI's template without its widgets, and with the request's nonce in each tag that needs one."""

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, None]:
        if template != "index.html":
            raise TemplateNotFound(template)
        source = _WIDGETS.sub("", (_TEMPLATES / template).read_text())
        nonce = f'nonce="{{{{ request.scope.{_NONCE} }}}}"'
        for tag in ("script", "style"):
            source = source.replace(f"<{tag}", f"<{tag} {nonce}")
        # Inline styles need a permission of their own, and these two have better words.
        source = source.replace(' style="display: none"', " hidden")
        source = source.replace("{{ favicon_url }}", "/board/files/favicon.svg")
        # It adds an element for the styles of its widgets, which is empty here and would be complained of.
        source = source.replace("body_html |", "body_html | replace('<style></style>', '') |")
        return source, template, None


def keep_nonces() -> None:
    """Once, before the first page."""
    nicegui_client.templates.env.loader = _WithNonce()


class Policy:
    """Every answer has the policy; every request a nonce of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[_NONCE] = nonce = secrets.token_urlsafe(16)

        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                told = {"content-security-policy": policy(nonce), **HEADERS}
                has = {name.lower() for name, _ in message["headers"]}  # a plain page has a stricter one
                message["headers"] = [
                    *message["headers"],
                    *((n.encode(), value.encode()) for n, value in told.items() if n.encode() not in has),
                ]
            await send(message)

        await self._app(scope, receive, with_policy)
