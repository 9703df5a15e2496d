"""What our pages share: nothing runs or is fetched but what they bring, and the colours of their ground."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files


def policy(style: str, script: str | None = None) -> str:
    """The content policy of a page with this one style, and with this script or none."""
    scripts = "'none'" if script is None else _hashed(script)
    return (
        f"default-src 'none'; script-src {scripts}; style-src {_hashed(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hashed(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def part(name: str, package: str = "penstock.diagnosis.timeline") -> str:
    """A file that a page is made of."""
    return files(package).joinpath("files", name).read_text(encoding="utf-8")


def ground() -> str:
    """The style that sets the colours of ground, ink and lines, light and dark."""
    return part("ground.css")


def fit_for_text(text: str) -> str:
    """Without halves of surrogate pairs, which no file can hold."""
    return text.encode("utf-8", "replace").decode()
