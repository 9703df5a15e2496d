"""Where what belongs to a store lies: beside its file, or for a database in the user's own folder."""

from __future__ import annotations

import os

LIBRARY_FOLDER = "library"  # of collections, beside the store


def beside_store(store: str, what: str) -> str:
    if "://" not in store:
        return f"{os.path.abspath(store)}.{what}"
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "penstock", f"{tag_of(store)}.{what}")


def tag_of(store: str) -> str:
    """A short word that stands for this store and no other."""
    import hashlib

    return hashlib.blake2b(store.encode(), digest_size=8).hexdigest()
