"""Pages without scripts, for when the board is not there: what went wrong, in the look of the board.

They load nothing at all. Their one style is in the page, and the policy names it by its digest.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from html import escape

from penstock.web.door import Scope, Send
from penstock.web.refusals import Refused

_STYLE = """
:root { color-scheme: light dark; --ground: #f7f8fa; --card: #ffffff; --ink: #1b1f24; --soft: #57606a;
  --line: #d0d7de; --main: #0b62c4; --on-main: #ffffff; --bad: #b3261e }
@media (prefers-color-scheme: dark) {
  :root { --ground: #0e1116; --card: #161b22; --ink: #e6edf3; --soft: #9aa4af; --line: #30363d;
    --main: #4c9aff; --on-main: #06121f; --bad: #ff8a80 } }
* { box-sizing: border-box }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 1.5rem;
  background: var(--ground); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif }
main { width: 100%; max-width: 27rem; background: var(--card); border: 1px solid var(--line);
  border-radius: .75rem; padding: 1.75rem }
h1 { margin: 0 0 .75rem; font-size: 1.25rem; line-height: 1.3 }
p { margin: .5rem 0; overflow-wrap: anywhere }
.name { margin: 0 0 1rem; color: var(--soft); font-size: .875rem; letter-spacing: .02em }
.soft { color: var(--soft); font-size: .875rem }
.bad { color: var(--bad); font-weight: 600 }
code { font: .875rem/1.4 ui-monospace, monospace; overflow-wrap: anywhere }
.line { display: block; padding: .5rem .7rem; background: var(--ground); border-radius: .4rem; font-size: .8125rem }
label { display: block; margin: 1rem 0 .25rem; font-weight: 600 }
input { width: 100%; padding: .55rem .7rem; font: inherit; color: inherit; background: var(--ground);
  border: 1px solid var(--soft); border-radius: .4rem }
button { margin: 1rem 0; padding: .55rem 1.1rem; font: inherit; font-weight: 600; color: var(--on-main);
  background: var(--main); border: 1px solid transparent; border-radius: .4rem; cursor: pointer }
:focus-visible { outline: 3px solid var(--main); outline-offset: 2px }
a { color: var(--main) }
"""
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)

# Of every answer under /board. The referrer stays within the site, or a form's origin would be told as "null".
HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


_AGAIN = "This page loads again by itself."


def is_for_reading(scope: Scope) -> bool:
    """A person asks for a page, not a program for data."""
    if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
        return False
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def document(title: str, inner: str) -> bytes:
    """`inner` is markup: whatever is put in it from elsewhere has been escaped."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} · Penstock</title><style>{_STYLE}</style></head>"
        f'<body><main><p class="name">Penstock</p>{inner}</main></body></html>\n'
    ).encode()


def failed_page(refused: Refused, anew: str = "") -> bytes:
    """`anew` is the address of the log-in, where another token would help."""
    remedy = f'<p class="soft">{_prose(refused.remedy)}</p>' if refused.remedy else ""
    title = "You may not see this" if refused.status == 403 else "The board is not there"
    if "Refresh" in refused.headers:
        title = "The store is away"
        remedy += f"<p>{_AGAIN}</p>"
    out = f'<p><a href="{anew}">Log in with another token</a></p>' if anew else ""
    return document(title, f"<h1>{title}</h1><p>{_prose(refused.message)}</p>{remedy}{out}")


def _prose(text: str) -> str:
    """As markup, with the commands in it, which stand between backticks, as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def starting_page() -> bytes:
    return document(
        "Starting",
        f"<h1>The board is starting</h1><p>{_AGAIN}</p>"
        '<p class="soft">The machine is busy: it usually takes two or three seconds.</p>',
    )


async def page(body: bytes, status: int, send: Send, headers: Mapping[str, str]) -> None:
    """Answer with a page, or with none where it leads elsewhere."""
    told = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *((name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": body})
