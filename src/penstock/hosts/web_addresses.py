"""Whether a task may have an address of the web fetched: http or https, and nothing inside the own network.

What an attempt fetches becomes part of a report, so whoever may submit could read what only this machine or its
network can reach: a router, a service without a password, the secrets of a cloud machine. Names are judged by
their form; none is looked up.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from penstock.config.own_address import is_this_machine, numeric

_INSIDE = (".local", ".localhost", ".internal", ".intranet", ".lan", ".home", ".corp", ".home.arpa")
_SCHEMES = ("http://", "https://")


def address_problem(url: str, *, inside_too: bool) -> str | None:
    """Why an address is not fetched; `inside_too` when those of the own network may be."""
    if not url.lower().startswith(_SCHEMES) or not url.isprintable() or any(c in url for c in " \\"):
        return "is no address of the web; it must begin with http:// or https://"
    try:
        parts = urlsplit(url)
        name, _ = parts.hostname, parts.port
    except ValueError:
        return "is no address of the web; correct it"
    if not name:
        return "names no host; correct it"
    if not inside_too and is_inside(name):
        return "is an address inside your own network; set `private_urls = true` of the host to allow such"
    return None


def is_inside(name: str) -> bool:
    """Whether a host of a url is this machine or one beside it."""
    name = name.lower().rstrip(".")
    address = numeric(name)
    if address is not None:
        return not address.is_global or address.is_multicast
    return "." not in name or name.endswith(_INSIDE) or is_this_machine(name)
