"""A container is closed unless the config opens it, and is known again by its labels. B1."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from penstock.agents.engine import recipe
from penstock.agents.engine.recipe import Identity, Place
from penstock.config.agents import Agent, Limits, Mount, Pool, Privileges

IDENTITY = Identity("a1b2c3", "the-key", "the-proof", "home1")
PLACE = Place(server="/lib/agent_server.py")
AGENT = Agent("reports", "localhost/reports:latest", command=("serve", "--all"))


def made(agent: Agent, place: Place = PLACE, passed: dict[str, str] | None = None) -> dict[str, Any]:
    return recipe.document(agent, IDENTITY, passed or {}, "mark1", place)


def test_everything_is_closed_by_default() -> None:
    document = made(AGENT)
    host = document["HostConfig"]
    assert document["User"] == "65534:65534"
    assert host["ReadonlyRootfs"] is True
    assert host["CapDrop"] == ["ALL"]
    assert host["CapAdd"] == []
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["Privileged"] is False
    assert host["PidsLimit"] == 256
    ours = "mode=1777,uid=65534,gid=65534"
    assert host["Tmpfs"] == {
        "/tmp": f"rw,nosuid,nodev,size=64m,{ours}",
        "/run": f"rw,nosuid,nodev,size=16m,{ours}",
        "/var/tmp": f"rw,nosuid,nodev,size=16m,{ours}",
    }
    assert host["Mounts"] == []
    assert host["LogConfig"]["Config"] == {"max-size": "10m"}
    assert host["RestartPolicy"] == {"Name": "no"}
    assert host["PortBindings"] == {"8080/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}]}
    assert "NetworkMode" not in host
    assert "Ulimits" not in host


def test_the_config_opens_what_it_names() -> None:
    opened = Privileges(read_only=False, new_privileges=True, capabilities=("NET_ADMIN",), user=None)
    document = made(replace(AGENT, privileges=opened, limits=Limits(pids=None)))
    host = document["HostConfig"]
    assert "User" not in document
    assert host["ReadonlyRootfs"] is False
    assert (host["CapDrop"], host["CapAdd"]) == (["ALL"], ["NET_ADMIN"])
    assert host["SecurityOpt"] == []
    assert host["Tmpfs"] == {"/tmp": "rw,nosuid,nodev,size=64m,mode=1777"}
    assert "PidsLimit" not in host


def test_limits_leave_no_swap() -> None:
    host = made(replace(AGENT, limits=Limits(cpus=0.5, memory_mb=64, pids=9, tmp_mb=0.2)))["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == 64 * 1024 * 1024
    assert host["NanoCpus"] == 500_000_000
    assert host["PidsLimit"] == 9
    assert "size=1m" in host["Tmpfs"]["/tmp"]


def test_the_agents_own_command_runs_as_the_images_would() -> None:
    document = made(AGENT)
    assert document["Cmd"] == ["serve", "--all"]
    assert "Entrypoint" not in document
    assert document["HostConfig"]["Init"] is True, "it may not reap children"
    assert made(AGENT, replace(PLACE, has_init=False))["HostConfig"]["Init"] is False
    assert not {"Cmd", "Entrypoint"} & set(made(replace(AGENT, command=())))


def test_our_server_is_mounted_and_told_what_to_run() -> None:
    agent = Agent(
        "reports",
        "image",
        handlers={"sum": ("python3", "sum.py")},
        runner=("run", "it"),
        folder="/srv/reports",
        port=9000,
        pool=Pool(concurrency=3, idle_s=90),
    )
    document = made(agent)
    assert document["Entrypoint"] == ["python3"]
    assert document["Cmd"] == [
        *("/penstock/agent_server.py", "--listen", "0.0.0.0:9000", "--concurrency", "3", "--idle-s", "90"),
        *(
            "--handlers",
            "/agent/handlers",
            "--handler",
            'sum=["python3", "sum.py"]',
            "--runner",
            '["run", "it"]',
        ),
    ]
    assert document["HostConfig"]["Mounts"] == [
        {
            "Type": "bind",
            "Source": "/lib/agent_server.py",
            "Target": "/penstock/agent_server.py",
            "ReadOnly": True,
        },
        {"Type": "bind", "Source": "/srv/reports", "Target": "/agent", "ReadOnly": True},
    ]
    assert document["HostConfig"]["Init"] is False, "our server reaps"
    assert "--no-key" in made(replace(agent, plain=True))["Cmd"]


def test_mounts_are_read_only_unless_said() -> None:
    mounts = (Mount("/a", "/x"), Mount("/b", "/y", read_only=False))
    found = made(replace(AGENT, mounts=mounts))["HostConfig"]["Mounts"]
    assert [(one["Source"], one["Target"], one["ReadOnly"]) for one in found] == [
        ("/a", "/x", True),
        ("/b", "/y", False),
    ]


def test_what_is_mounted_at_tmp_takes_the_place_of_ours() -> None:
    host = made(replace(AGENT, mounts=(Mount("/a", "/tmp"),)))["HostConfig"]
    assert host["Tmpfs"].keys() == {"/run", "/var/tmp"}
    assert [one["Target"] for one in host["Mounts"]] == ["/tmp"]
    within = made(replace(AGENT, mounts=(Mount("/a", "/var"), Mount("/b", "/run/b"))))["HostConfig"]
    assert within["Tmpfs"].keys() == {"/tmp", "/run"}, "nothing is mounted inside of what is mounted"


@pytest.mark.parametrize(
    ("user", "is_podman", "owner"),
    [
        ("65534:65534", True, ",U"),
        (None, True, ",U"),
        ("1000:100", False, ",uid=1000,gid=100"),
        ("1000", False, ""),
        ("www:www", False, ""),
        (None, False, ""),
    ],
)
def test_what_is_in_memory_belongs_to_its_user(user: str | None, is_podman: bool, owner: str) -> None:
    agent = replace(AGENT, privileges=Privileges(user=user))
    host = made(agent, replace(PLACE, is_podman=is_podman))["HostConfig"]
    assert {options.partition("mode=1777")[2] for options in host["Tmpfs"].values()} == {owner}


def test_without_a_network_it_is_reached_by_a_socket() -> None:
    agent = Agent("reports", "image", runner=("run",), network=False)
    document = made(agent, replace(PLACE, socket_folder="/state/socket-a1b2c3"))
    assert document["HostConfig"]["NetworkMode"] == "none"
    assert "PortBindings" not in document["HostConfig"]
    assert "ExposedPorts" not in document
    assert document["Labels"][recipe.SOCKET_LABEL] == "/state/socket-a1b2c3/agent.sock"
    assert document["Labels"][recipe.PORT_LABEL] == ""
    assert document["Cmd"][1:5] == ["--unix", "/run/penstock/agent.sock", "--unix-mode", "666"]
    mount = document["HostConfig"]["Mounts"][-1]
    assert (mount["Source"], mount["Target"], mount["ReadOnly"]) == (
        "/state/socket-a1b2c3",
        "/run/penstock",
        False,
    )


def test_an_engine_elsewhere_is_sent_what_it_cannot_mount() -> None:
    agent = Agent("reports", "image", runner=("run",), folder="/srv/reports")
    document = made(agent, Place(is_copied=True, publish_on=""))
    assert document["Volumes"] == {"/penstock": {}, "/agent": {}}
    assert document["HostConfig"]["Mounts"] == []
    assert document["HostConfig"]["PortBindings"]["8080/tcp"][0]["HostIp"] == ""
    assert made(AGENT, Place(is_copied=True))["Volumes"] == {}


def test_its_environment() -> None:
    agent = replace(AGENT, env={"A": "1", "HOME": "/data"}, pass_env=("TOKEN",))
    assert set(made(agent, passed={"TOKEN": "hunter22"})["Env"]) == {
        "A=1",
        "HOME=/data",
        "TOKEN=hunter22",
        "PENSTOCK_AGENT_KEY=the-key",
        "PENSTOCK_AGENT_PROOF=the-proof",
        "PENSTOCK_AGENT_INSTANCE=a1b2c3",
    }
    assert set(made(replace(AGENT, plain=True))["Env"]) == {"HOME=/tmp", "PENSTOCK_AGENT_INSTANCE=a1b2c3"}
    assert "HOME=/tmp" not in made(replace(AGENT, privileges=Privileges(user=None)))["Env"]


def test_nobody_reads_an_identity_by_accident() -> None:
    assert repr(IDENTITY) == "Identity(a1b2c3)"


# ---- what makes another container, and what does not


@pytest.mark.parametrize(
    "other",
    [
        replace(AGENT, image="other"),
        replace(AGENT, command=("serve",)),
        replace(AGENT, env={"A": "1"}),
        replace(AGENT, pass_env=("A",)),
        replace(AGENT, limits=Limits(pids=1)),
        replace(AGENT, privileges=Privileges(read_only=False)),
        replace(AGENT, mounts=(Mount("/a", "/b"),)),
        replace(AGENT, network=False),
        replace(AGENT, pool=Pool(concurrency=2)),
        replace(AGENT, pool=Pool(idle_s=1)),
    ],
)
def test_another_container_has_another_fingerprint(other: Agent) -> None:
    assert recipe.fingerprint(other, b"") != recipe.fingerprint(AGENT, b"")


def test_how_many_there_are_makes_no_other_container() -> None:
    pool = Pool(containers=9, warm=3, max_tasks=5, max_age_s=60, start_s=1)
    other = replace(AGENT, pool=pool, queue="/tasks")
    assert recipe.fingerprint(other, b"") == recipe.fingerprint(AGENT, b"")


def test_another_server_makes_another_container_where_it_is_used() -> None:
    served = Agent("reports", "image", runner=("run",))
    assert recipe.fingerprint(served, b"1") != recipe.fingerprint(served, b"2")
    assert recipe.fingerprint(AGENT, b"1") == recipe.fingerprint(AGENT, b"2")


# ---- install


def test_install_comes_before_our_server_and_sees_no_keys() -> None:
    """The wrapper is run here as a container would run it."""
    show = "import os; print(sorted(name for name in os.environ if name.startswith('PENSTOCK_')))"
    install, update = (sys.executable, "-c", show), ("/bin/echo", "updated")
    agent = Agent("x", "image", runner=("run",), python=sys.executable, install=install, update=update)
    document = made(agent)
    argv = document["Entrypoint"] + document["Cmd"]
    server = argv.index("/penstock/agent_server.py")
    assert argv[server - 1] == sys.executable
    told = [*argv[: server - 1], "/bin/echo", "serving", "a b"]
    environ = dict(one.split("=", 1) for one in document["Env"])
    done = subprocess.run(told, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "updated", "serving a b"]

    steps = json.dumps({"install": ["/bin/false"], "update": ["/bin/echo", "never"]})
    failing = [*told[:3], steps, *told[4:]]
    ended = subprocess.run(failing, env=environ, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "install failed with status 1" in ended.stderr


def test_install_comes_before_a_command_whatever_its_words_are() -> None:
    agent = replace(AGENT, command=("/bin/echo", "it's $HOME", ";"), install=("/bin/echo", "first;", "`x`"))
    agent = replace(agent, update=("/bin/echo", "second"))
    document = made(agent)
    done = subprocess.run(
        document["Entrypoint"] + document["Cmd"], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["first; `x`", "second", "it's $HOME ;"]
    failing = made(replace(agent, install=("/bin/false",)))
    ended = subprocess.run(failing["Entrypoint"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")


def test_labels_of_an_image_take_no_place_of_ours() -> None:
    """What is not set is as the image says: it could name a socket of this machine for us to send keys to."""
    own = {name for key, name in vars(recipe).items() if key.endswith("_LABEL")}
    labels = made(AGENT)["Labels"]
    assert labels.keys() == own
    assert labels[recipe.SOCKET_LABEL] == labels[recipe.SECRETS_LABEL] == ""
