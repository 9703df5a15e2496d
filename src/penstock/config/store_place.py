"""Where what belongs to a store lies: beside its file, or for a database in the user's own folder."""

from __future__ import annotations

import os
from contextlib import suppress

from penstock.config.postgres_place import is_postgres, postgres_place

LIBRARY_FOLDER = "library"  # of collections, beside the store


def beside_store(store: str, what: str) -> str:
    if "://" not in store:
        return f"{os.path.abspath(store)}.{what}"
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "penstock", f"{tag_of(store)}.{what}")


def tag_of(store: str) -> str:
    """A short word that stands for this store and no other, however its URL is written."""
    import hashlib

    if is_postgres(store):
        with suppress(ValueError):
            store = postgres_place(store).identity

    return hashlib.blake2b(store.encode(), digest_size=8).hexdigest()
