"""Which dispatcher the workers of a store obey: the one of its latest term, whoever still believes to lead.

A term is proclaimed in the cluster itself, before its dispatcher looks for workers. A worker that is found learns
of it then; one that an earlier dispatcher hires afterwards finds it proclaimed, and does not begin. Every order to
a worker is stamped with the term of whoever gives it.
"""

from __future__ import annotations

import struct

_STAMP = struct.Struct("!Q")
_NAMESPACE = b"penstock"


def stamp(term: int) -> bytes:
    return _STAMP.pack(term)


def opened(order: bytes) -> tuple[int, bytes]:
    """The term of an order, and what is ordered."""
    return _STAMP.unpack_from(order)[0], order[_STAMP.size :]


def proclaim(names: str, term: int) -> bool:
    """Make a term known to all workers whose names begin so; False: there is a later one."""
    from ray.experimental import internal_kv

    # A key for each: two that come at once cannot write over each other's.
    internal_kv._internal_kv_put(_key(names, term), b"", namespace=_NAMESPACE)
    last = latest(names)
    for earlier in _terms(names):
        if earlier < last:
            internal_kv._internal_kv_del(_key(names, earlier), namespace=_NAMESPACE)
    return last == term


def latest(names: str) -> int:
    return max(_terms(names), default=0)


def _terms(names: str) -> list[int]:
    from ray.experimental import internal_kv

    prefix = f"term/{names}".encode()
    found = internal_kv._internal_kv_list(prefix, namespace=_NAMESPACE)
    return [int(key[len(prefix) :]) for key in found]


def _key(names: str, term: int) -> bytes:
    return f"term/{names}{term}".encode()
