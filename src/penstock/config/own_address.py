"""Whether an address leads back to `serve` of this config: its port, on this machine, however that is written.

No name is looked up in the network: a config is read in no time, and the same everywhere. What names this machine
are its loopback addresses in every notation, the addresses of its network cards, `localhost` and its host name.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TypeAlias
from urllib.parse import urlsplit

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


def leads_back(url: str, port: int) -> bool:
    """Whether `serve`, listening at that port, would be who answers at the url."""
    try:
        parts = urlsplit(url)
        asked = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return False  # its adapter tells what is wrong
    return asked == port and is_this_machine(parts.hostname or "")


def is_this_machine(name: str) -> bool:
    """Whether a host of a url is the machine we run on."""
    name = name.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = numeric(name)
    if address is None:
        own = socket.gethostname().lower().rstrip(".")
        return bool(own) and name in (own, own.partition(".")[0], f"{own}.local")
    return address.is_loopback or address.is_unspecified or address in _of_network_cards()


def is_loopback(name: str) -> bool:
    """Whether a host of a url is reached from its own machine alone."""
    address = numeric(name)
    return name == "localhost" if address is None else address.is_loopback


def numeric(name: str) -> Address | None:
    """The address that digits stand for, also short, octal, hexadecimal or mapped; None for a name."""
    try:
        address: Address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(name))  # 127.1, 0x7f.1, 2130706433
        except (OSError, UnicodeError):
            return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def _of_network_cards() -> set[Address]:
    import psutil  # only few configs come so far

    found = {
        numeric(one.address)
        for addresses in psutil.net_if_addrs().values()
        for one in addresses
        if one.family in (socket.AF_INET, socket.AF_INET6)
    }
    return {address for address in found if address is not None}
