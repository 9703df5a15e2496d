"""A9, E6: where attempts find the models of their dispatcher, on its machine and on others, and by which keys."""

from __future__ import annotations

import platform

import pytest

from penstock.config.server import Server
from penstock.hosts.own_door import Guest
from penstock.web.auth import Tokens
from penstock.web.own_entrance import OwnEntrance
from penstock.web.refusals import Refused
from penstock.web.sockets import bind

GUEST = Guest("t1", 1, "calls", 2, "nightly")


def tokens() -> Tokens:
    return Tokens(Server(), loopback=False)


@pytest.mark.parametrize(
    ("host", "advertise", "here", "elsewhere"),
    [
        ("127.0.0.1", None, "http://127.0.0.1:{port}/v1", None),
        ("0.0.0.0", None, "http://127.0.0.1:{port}/v1", f"http://{platform.node()}:{{port}}/v1"),
        ("0.0.0.0", "http://front:80", "http://front:80/v1", "http://front:80/v1"),
        ("127.0.0.1", "http://front:80", "http://front:80/v1", "http://front:80/v1"),
        ("127.0.0.1", "http://localhost:80", "http://localhost:80/v1", None),
        ("127.0.0.1", "http://127.0.0.2:80", "http://127.0.0.2:80/v1", None),
    ],
)
def test_nodes_are_told_an_address_that_they_reach(
    host: str, advertise: str | None, here: str, elsewhere: str | None
) -> None:
    (bound,) = bind(host, 0)
    with bound:
        port = bound.getsockname()[1]
        entrance = OwnEntrance([bound], tokens(), advertise)
        near, far = entrance.node_urls
        assert near == here.format(port=port)
        assert far == (None if elsewhere is None else elsewhere.format(port=port))
        assert entrance.url == f"http://127.0.0.1:{port}/v1"


def test_what_leads_to_whoever_leads_is_told_to_nodes_alone() -> None:
    (bound,) = bind("127.0.0.1", 0)
    with bound:
        entrance = OwnEntrance([bound], tokens(), "http://10.0.0.5:8787", "http://front:8787")
        assert entrance.node_urls == ("http://front:8787/v1", "http://front:8787/v1")
        assert entrance.url == f"http://127.0.0.1:{bound.getsockname()[1]}/v1"


def test_a_key_made_of_a_root_is_known_again_by_who_has_the_root() -> None:
    dead, leader = tokens(), tokens()
    key = dead.invite(GUEST, b"root")
    headers = {b"authorization": f"Bearer {key}".encode()}
    with pytest.raises(Refused):
        leader.caller(headers)
    assert leader.invite(GUEST, b"root") == key
    assert leader.caller(headers).guest == GUEST
    leader.dismiss(key)
    with pytest.raises(Refused):
        leader.caller(headers)
    others = [
        leader.invite(GUEST._replace(attempt=2), b"root"),
        leader.invite(GUEST._replace(task="t2"), b"root"),
        leader.invite(GUEST, b"another"),
        leader.invite(GUEST),
    ]
    assert len({key, *others}) == 5
