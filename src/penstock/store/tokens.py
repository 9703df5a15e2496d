"""The secrets of tokens: how one is made, and whether one that is shown is the right one.

    ps_3f9a01c2_pV8…            `ps_`, eight open digits that find the token, 32 random bytes
    ps_attempt_3f9a01c2_pV8…    the same of an attempt: whoever does not know it knows who has to be asked

A secret of 256 random bits cannot be guessed or looked up, so a plain SHA-256 of it is a safe thing to keep.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.store.base import Token

PREFIX = "ps_"
OF_ATTEMPT = f"{PREFIX}attempt_"
SCOPES = ("submit", "read", "admin")

_FORM = re.compile(r"ps_(?:attempt_)?([0-9a-f]{8})_[A-Za-z0-9_-]{43}", re.ASCII)


def new_secret(prefix: str = PREFIX) -> tuple[str, str]:
    """The id and the whole of a new secret."""
    id = secrets.token_hex(4)
    return id, f"{prefix}{id}_{secrets.token_urlsafe(32)}"


def derived_secret(root: bytes, of: Sequence[str | int]) -> tuple[str, str]:
    """An attempt's: the same whenever it is asked for; nobody makes it who has not the root."""
    what = msgspec.json.encode(of)
    id = hmac.digest(root, b"penstock id\0" + what, "sha256").hex()[:8]
    made = hmac.digest(root, b"penstock key\0" + what, "sha256")
    return id, f"{OF_ATTEMPT}{id}_{base64.urlsafe_b64encode(made).decode().rstrip('=')}"


def id_of(secret: str) -> str | None:
    """Which token a secret claims to be of; None when it has not the form of ours."""
    found = _FORM.fullmatch(secret)
    return None if found is None else found[1]


def may_be_of_attempt(secret: str) -> bool:
    return secret.startswith(OF_ATTEMPT) and id_of(secret) is not None


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def is_secret_of(token: Token, secret: str) -> bool:
    """In a time that tells nothing of how much of it is right."""
    return hmac.compare_digest(digest_of(secret), token.digest)


def token_record(token: Token) -> dict[str, Any]:
    """What others may know of a token."""
    return {
        "name": token.name,
        "scopes": list(token.scopes),
        "lane": token.lane,
        "priority": token.priority,
        "requests_per_min": token.requests_per_min,
        "max_queued": token.max_queued,
        "created_at": token.created_at,
    }
