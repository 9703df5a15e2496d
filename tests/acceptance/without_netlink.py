"""Runs a program that cannot hear which networks come and go.

    python without_netlink.py PROGRAM ARGUMENTS…

Chromium gives up every connection it is just making, also to this machine, when an address appears or goes, and
tests with containers make that happen all the time. A filter of the kernel refuses the sockets by which it would
hear of it; the program takes that as a machine that is online. Where there is no such filter it is run as it is.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

# How the kernel names the machine, and the number of its call `socket`.
_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
_AF_NETLINK = 16
_EAFNOSUPPORT = 97
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
_MODE_FILTER = 2
# Instructions of the filter, and where in what it is shown a value stands.
_LOAD, _SKIP_UNLESS_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_AT, _MACHINE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_ALLOW, _FAIL_WITH = 0x7FFF0000, 0x00050000


def _step(code: int, value: int, skip: int = 0) -> bytes:
    return struct.pack("HBBI", code, 0, skip, value)


def _refuse_netlink(machine: int, socket: int) -> None:
    steps = (
        _step(_LOAD, _MACHINE_AT),
        _step(_SKIP_UNLESS_EQUAL, machine, 5),
        _step(_LOAD, _NUMBER_AT),
        _step(_SKIP_UNLESS_EQUAL, socket, 3),
        _step(_LOAD, _FIRST_ARGUMENT_AT),
        _step(_SKIP_UNLESS_EQUAL, _AF_NETLINK, 1),
        _step(_RETURN, _FAIL_WITH | _EAFNOSUPPORT),
        _step(_RETURN, _ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(steps))
    program = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    for words in ((_PR_SET_NO_NEW_PRIVS, 1, 0), (_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(program))):
        prctl(*words, 0, 0)


if __name__ == "__main__":
    if known := _MACHINES.get(platform.machine()):
        _refuse_netlink(*known)
    os.execv(sys.argv[1], sys.argv[1:])
