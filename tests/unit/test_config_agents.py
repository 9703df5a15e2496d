"""[agents.NAME]: what is read, the host it implies, and what is refused with place and remedy."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.agents.keeper_note import KeeperNote
from penstock.config import Config, TaskChecker, as_document, parse, read_document
from penstock.config.agent_hosts import agents_kind
from penstock.config.agents import Agent, Limits, Mount, Pool, Privileges
from penstock.errors import ConfigError
from penstock.model import CHAT_CALL, Task
from penstock.setup.checkup import _agents as agent_findings

FILE = Path("/plant/penstock.toml")
REPORTS = '[agents.reports]\nimage = "localhost/reports:latest"\n'
MODEL = '[hosts.surtr]\ntype = "openai"\nurl = "http://surtr:1234/v1"\n'


def told(text: str, path: Path = FILE) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse(text, path)
    assert all("\n" not in problem for problem in caught.value.problems)
    return caught.value.problems


def only(text: str, path: Path = FILE) -> str:
    problems = told(text, path)
    assert len(problems) == 1, problems
    return problems[0].partition("penstock.toml")[2]


def agent(text: str, path: Path = FILE) -> Agent:
    return parse(text, path).agents["reports"]


FULL = (
    REPORTS
    + """
handlers = { render = ["python3", "render.py", ""] }
runner = ["sh", "run.sh"]
python = "/usr/bin/python3.12"
path = "reports"
install = ["sh", "-c", "echo 'a\\nb'"]
update = ["true"]
env = { TZ = "UTC", MAX_TOKENS = "100" }
pass_env = ["REPORTS_TOKEN"]
port = 9000
health = "/ready"
plain = true
network = false
mounts = [{ source = "data", target = "/data/" }, { source = "~/x", target = "/x", read_only = false }]
limits = { cpus = 1.5, memory_mb = 512, pids = 0, tmp_mb = 8 }
read_only = false
new_privileges = true
capabilities = ["NET_BIND_SERVICE"]
user = "image"
containers = 4
concurrency = 2
warm = 1
idle_s = 0
max_tasks = 100
max_age_s = 3600
start_s = 30
queue = "work"
"""
)


def test_b1_every_key_of_an_agent_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B1, B3, B5, B10: all that a container is made of, may use, and how many there are."""
    monkeypatch.setenv("HOME", "/own")
    (tmp_path / "reports").mkdir()
    config = parse(FULL, tmp_path / "penstock.toml")
    assert config.agents["reports"] == Agent(
        name="reports",
        image="localhost/reports:latest",
        handlers={"render": ("python3", "render.py", "")},
        runner=("sh", "run.sh"),
        python="/usr/bin/python3.12",
        folder=str(tmp_path / "reports"),
        install=("sh", "-c", "echo 'a\nb'"),
        update=("true",),
        env={"TZ": "UTC", "MAX_TOKENS": "100"},
        pass_env=("REPORTS_TOKEN",),
        port=9000,
        health="/ready",
        plain=True,
        network=False,
        mounts=(Mount(str(tmp_path / "data"), "/data"), Mount("/own/x", "/x", read_only=False)),
        limits=Limits(1.5, 512.0, None, 8.0),
        privileges=Privileges(False, True, ("NET_BIND_SERVICE",), None),
        pool=Pool(4, 2, 1, 0.0, 100, 3600.0, 30.0),
        queue=str(tmp_path / "work"),
    )
    assert config.with_settings({}) == config
    assert read_document(as_document(config), config.path) == config


def test_an_image_is_enough() -> None:
    assert agent(REPORTS) == Agent("reports", "localhost/reports:latest")


def test_settings_reach_an_agent() -> None:
    config = parse(REPORTS, FILE)
    changed = config.with_settings({"agents.reports.warm": "2", "agents.reports.containers": "3"})
    assert changed.agents["reports"].pool == Pool(containers=3, warm=2)
    assert changed.plant.hosts[0].slots == 24, "the implied host grows with its agent"
    with pytest.raises(ConfigError, match=r"agents.report.warm: no agent 'report'; did you mean 'reports'\?"):
        config.with_settings({"agents.report.warm": "2"})
    assert config.with_settings({"agents.b.image": "x"}).agents["b"].image == "x"


# ---- the host


def test_an_agent_implies_a_host() -> None:
    (host,) = parse(REPORTS + "containers = 3\nconcurrency = 4", FILE).plant.hosts
    assert (host.name, host.type, host.slots, host.serves) == ("reports", "agent", 12, ("reports",))
    assert host.options == {"agent": "reports"}


def test_an_explicit_host_takes_the_place_of_the_implied_one() -> None:
    text = REPORTS + '[hosts.x]\ntype = "agent"\nagent = "reports"\nrate = { requests_per_min = 9 }\n'
    (host,) = parse(text, FILE).plant.hosts
    assert (host.name, host.slots, host.serves) == ("x", 8, ("reports",))
    (own,) = parse(
        REPORTS + '[hosts.reports]\ntype = "agent"\nslots = 2\nserves = ["a", "b"]', FILE
    ).plant.hosts
    assert (own.slots, own.serves, own.options) == (2, ("a", "b"), {"agent": "reports"})
    assert agents_kind("reports", [own]) == "a"
    assert agents_kind("reports", [host]) == "reports"


def test_slots_of_its_own_stay_when_the_agent_grows() -> None:
    text = REPORTS + '[hosts.reports]\ntype = "agent"\nslots = 2\n'
    changed = parse(text, FILE).with_settings({"agents.reports.containers": "3"})
    assert changed.plant.hosts[0].slots == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '[hosts.reports]\ntype = "agent"\nslots = 9\n',
            ":5: hosts.reports.slots: is more than agent 'reports' runs at a time: 1 containers × 8 tasks; "
            "lower it, or raise agents.reports.containers or .concurrency",
        ),
        (
            '[hosts.reports]\ntype = "agent"\nslots = { auto = true, max = 9 }\n',
            ":5: hosts.reports.slots: is more than",
        ),
        (
            '[hosts.x]\ntype = "agent"\nagent = "report"\n[hosts.reports]\ntype = "agent"',
            ":5: hosts.x.agent: no such agent; did you mean 'reports'?",
        ),
        (
            '[hosts.x]\ntype = "agent"\n',
            ":4: hosts.x.type: no agent 'x'; add [agents.x], or name the one it is for",
        ),
        (
            '[hosts.reports]\ntype = "command"\nargv = ["x"]\n',
            ":1: agents.reports: host 'reports' has the same name and is of type 'command'; rename one, or add "
            '[hosts.OTHER] with type = "agent" and agent = "reports"',
        ),
        (
            '[hosts.a]\ntype = "agent"\nagent = "reports"\n[hosts.b]\ntype = "agent"\nagent = "reports"\n',
            ":6: hosts.b: agent 'reports' has host 'a'; there is one host for each agent",
        ),
        (
            MODEL + 'serves = ["reports"]',
            ":6: hosts.surtr.serves: kind 'reports' is that of an agent, by host reports",
        ),
        (
            MODEL + '[hosts.reports]\ntype = "agent"\nserves = ["*"]',
            ':8: hosts.reports.serves: "*" would also take what is meant for surtr; name its own kinds',
        ),
    ],
)
def test_a_host_that_does_not_fit_its_agent_is_refused(text: str, problem: str) -> None:
    assert only(REPORTS + text).startswith(problem)


def test_b7_what_is_for_an_agent_goes_to_no_host_that_serves_all() -> None:
    """B7: a model host with "*" beside an agent keeps its tasks, and no others."""
    config = parse(MODEL + '[hosts.all]\ntype = "python"\ncall = "m:f"\n' + REPORTS, FILE)
    serving = {
        kind: [h.name for h in config.plant.hosts if h.serves_kind(kind)] for kind in ("reports", "x", "chat")
    }
    assert serving == {"reports": ["reports"], "x": ["surtr", "all"], "chat": ["surtr", "all"]}


def test_an_agent_may_take_tasks_of_any_kind_and_calls_stay_with_the_model() -> None:
    """B7: kinds of tasks are names like any other; calls have kinds of their own."""
    config = parse(MODEL + '[agents.chat]\nimage = "x"\n', FILE)
    assert [host.name for host in config.plant.hosts_for("chat")] == ["chat"]
    assert [host.name for host in config.plant.hosts_for(CHAT_CALL)] == ["surtr"]
    TaskChecker(config).check(Task("reports", {"command": "render"}))
    named = parse('[hosts.all]\ntype = "python"\ncall = "m:f"\nserves = ["*", "reports"]\n' + REPORTS, FILE)
    assert [h.name for h in named.plant.hosts if h.serves_kind("reports")] == ["all", "reports"]


# ---- what is refused


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[agents.reports]\nwarm = 1", ':1: agents.reports: has no image; add image = "…"'),
        (REPORTS + "imag = 1", ":3: agents.reports.imag: unknown key; did you mean 'image'?"),
        (REPORTS + 'token = "x"', ":3: agents.reports.token: a secret does not belong in this file"),
        ('[agents.reports]\nimage = "a b"', ":2: agents.reports.image: must be the name of an image"),
        ("[agents.reports]\nimage = 3", ":2: agents.reports.image: must be text in quotes, not a number"),
        (
            REPORTS + 'command = "node server.js"',
            ':3: agents.reports.command: must be a list of words like ["python3", "render.py"], not text: no shell',
        ),
        (
            REPORTS + 'install = ["x"]',
            ":3: agents.reports.install: what the image would start is not known; add",
        ),
        (REPORTS + 'command = [""]', ":3: agents.reports.command: must begin with a program"),
        (REPORTS + 'runner = ["a", 3]', ":3: agents.reports.runner[2]: must be text in quotes, not a number"),
        (
            REPORTS + 'runner = ["a", "b\\u0000"]',
            ":3: agents.reports.runner[2]: must be text in quotes, not text",
        ),
        (REPORTS + 'handlers = ["a"]', ":3: agents.reports.handlers: must be a table like"),
        (
            REPORTS + 'handlers = { render = "a b" }',
            ":3: agents.reports.handlers.render: must be a list of words",
        ),
        (REPORTS + "handlers = { render = [] }", ":3: agents.reports.handlers.render: is empty"),
        (REPORTS + 'handlers = { "../x" = ["a"] }', ":3: agents.reports.handlers.'../x': is not a command"),
        (
            REPORTS + 'command = ["a"]\nhandlers = { b = ["c"] }',
            ":4: agents.reports.handlers: is for Penstock's agent server, whose place `command` takes",
        ),
        (REPORTS + 'env = { API_KEY = "sk-1" }', ":3: agents.reports.env.API_KEY: a secret does not belong"),
        (REPORTS + 'env = { DB_PASSWORD = "sk-1" }', ":3: agents.reports.env.DB_PASSWORD: a secret does not"),
        (REPORTS + "env = { A = 1 }", ":3: agents.reports.env.A: must be text, not a number"),
        (REPORTS + 'env = { "A=" = "1" }', ":3: agents.reports.env.'A=': must be the name of a variable"),
        (
            REPORTS + 'env = { PENSTOCK_AGENT_KEY = "1" }',
            ":3: agents.reports.env.PENSTOCK_AGENT_KEY: PENSTOCK_AG",
        ),
        (REPORTS + 'pass_env = ["A B"]', ":3: agents.reports.pass_env: must be the name of a variable"),
        (
            REPORTS + "port = 0",
            ":3: agents.reports.port: must be a whole number from 1 to 65535, not a smaller one",
        ),
        (REPORTS + 'health = "ready"', ':3: agents.reports.health: must be a path like "/health"'),
        (REPORTS + 'network = "none"', ":3: agents.reports.network: must be true or false, not text"),
        (REPORTS + 'mounts = ["a:/b"]', ":3: agents.reports.mounts[1]: must be a table like"),
        (REPORTS + 'mounts = [{ source = "a" }]', ":3: agents.reports.mounts[1]: has no target; give both"),
        (
            REPORTS + 'mounts = [{ source = "a", target = "b" }]',
            ":3: agents.reports.mounts[1].target: must be a path",
        ),
        (
            REPORTS + 'mounts = [{ source = "a", target = "/" }]',
            ":3: agents.reports.mounts[1].target: must be a path",
        ),
        (
            REPORTS + 'mounts = [{ source = "a", target = "/x" }, { source = "b", target = "/x/" }]',
            ":3: agents.reports.mounts[2].target: something else is mounted there; choose another",
        ),
        (
            REPORTS + 'path = "/"\nmounts = [{ source = "a", target = "/agent" }]',
            ":4: agents.reports.mounts[1].target: something else is mounted there",
        ),
        (
            REPORTS + "limits = { cpu = 1 }",
            ":3: agents.reports.limits.cpu: unknown key; did you mean 'cpus'?",
        ),
        (
            REPORTS + "limits = { cpus = 0 }",
            ":3: agents.reports.limits.cpus: must be a number from 0.01 to 4096",
        ),
        (
            REPORTS + 'capabilities = ["net_admin"]',
            ":3: agents.reports.capabilities[1]: must be a capab",
        ),
        (REPORTS + 'user = "a:b:c"', ":3: agents.reports.user: must be a user of the image"),
        (REPORTS + "containers = 0", ":3: agents.reports.containers: must be a whole number from 1 to 1000"),
        (REPORTS + 'path = "nowhere/at/all"', ":3: agents.reports.path: there is no such folder"),
        (
            REPORTS + 'queue = "w"\n[agents.b]\nimage = "x"\nqueue = "./w/"',
            ":6: agents.b.queue: is the queue of agent 'reports'; give each a folder of its own",
        ),
        ("agents = 3", ":1: agents: must be a table like [agents.NAME], not a number"),
        ('[agents."a b"]\nimage = "x"', ":1: agents.'a b': is not a name"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_remedy(text: str, problem: str) -> None:
    """Promise 7."""
    assert only(text).startswith(problem)
    assert "sk-1" not in only(text)


# ---- a folder with a manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "reports"
    found.mkdir()
    return found


def from_manifest(folder: Path, manifest: Any, text: str = "") -> Config:
    (folder / "manifest.json").write_text(manifest if isinstance(manifest, str) else json.dumps(manifest))
    return parse(f'[agents.reports]\npath = "reports"\n{text}', folder.parent / "penstock.toml")


MANIFEST = {
    "name": "reports",
    "image": "localhost/reports:latest",
    "commands": {
        "install": "sh /agent/install.sh",
        "update": "true",
        "run": "node 'my server.js' --port 8080",
    },
    "env": ["TZ=UTC", "REPORTS_TOKEN"],
    "taskRunner": "http",
}


def test_b1_an_agent_comes_from_a_folder_with_a_manifest(folder: Path) -> None:
    """B1: the manifest that agents have today is enough."""
    config = from_manifest(folder, MANIFEST)
    assert config.agents["reports"] == Agent(
        "reports",
        "localhost/reports:latest",
        command=("node", "my server.js", "--port", "8080"),
        folder=str(folder),
        install=("sh", "/agent/install.sh"),
        update=("true",),
        env={"TZ": "UTC"},
        pass_env=("REPORTS_TOKEN",),
        plain=True,
    )
    assert config.with_settings({}) == config
    assert config.plant.hosts[0].name == "reports"


def test_keys_of_the_config_go_before_the_manifest(folder: Path) -> None:
    text = 'image = "x"\nhandlers = { a = ["b"] }\ninstall = []\nenv = { TZ = "CET" }\npass_env = ["B"]\n'
    config = from_manifest(folder, MANIFEST, text)
    found = config.agents["reports"]
    assert (found.image, found.command, found.install, found.update) == ("x", (), (), ("true",))
    assert found.has_own_server
    assert not found.plain
    assert (found.env, found.pass_env) == ({"TZ": "CET"}, ("REPORTS_TOKEN", "B"))
    assert config.with_settings({}) == config
    assert from_manifest(folder, MANIFEST, "plain = false").agents["reports"].plain is False


def test_a_folder_may_have_handlers_alone(folder: Path) -> None:
    text = '[agents.reports]\npath = "reports"\n'
    found = agent(text + 'image = "x"', folder.parent / "penstock.toml")
    assert found.has_own_server
    assert found.folder == str(folder)
    problem = only(text, folder.parent / "penstock.toml")
    assert problem.startswith(
        ":1: agents.reports: has no image, and no manifest.json with one is in its path"
    )


def test_check_tells_of_keys_that_mean_nothing_and_of_mounts_that_are_not_there(folder: Path) -> None:
    commands = {"run": "a", "cli": "b"}
    config = from_manifest(
        folder,
        MANIFEST | {"about": "Reports", "commands": commands},
        'mounts = [{ source = "gone", target = "/x" }, { source = "reports", target = "/y" }]',
    )
    keys, takes, mount = agent_findings(config)[:3]
    assert (keys.what, keys.name, keys.state) == ("agent", "reports", "well")
    assert keys.detail == "manifest.json has keys that mean nothing here: about, commands.cli"
    assert (takes.state, takes.detail) == (
        "well",
        "manifest.json takes of Penstock's environment: REPORTS_TOKEN",
    )
    assert (mount.state, mount.detail.split(";")[0]) == ("wrong", f"mounts: there is no {folder.parent}/gone")
    (folder / "manifest.json").write_text("{")
    assert [one.state for one in agent_findings(config)][:1] == ["wrong"]


def test_check_tells_what_the_first_call_would_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IS_SET", "x")
    monkeypatch.delenv("IS_NOT_SET", raising=False)
    path = tmp_path / "penstock.toml"
    path.write_text(
        '[agents.fine]\nimage = "x"\ncommand = ["serve"]\npass_env = ["IS_SET"]\ncapabilities = ["CHOWN"]\n'
        '[agents.odd]\nimage = "x"\npass_env = ["IS_SET", "IS_NOT_SET"]\ncapabilities = ["CHOWN", "FOO"]\n'
    )
    config = parse(path.read_text(), path)
    findings = agent_findings(config)
    assert {(one.name, one.state) for one in findings} == {("odd", "warning")}
    variable, capability, nothing = (one.detail for one in findings)
    assert variable.startswith("pass_env: IS_NOT_SET is not set here; set it")
    assert capability.startswith("capabilities: Linux has no FOO; see")
    assert "neither handlers" in nothing
    keeper = KeeperNote(f"{tmp_path}/penstock.db.agents/fine", "another")
    assert keeper.take()
    [kept] = [one for one in agent_findings(config) if one.name == "fine"]
    keeper.free()
    assert kept.state == "warning"
    assert f"process {os.getpid()}" in kept.detail
    assert "restart" in kept.detail


@pytest.mark.parametrize(
    ("keys", "told"),
    [("", True), ('user = "0:0"', False), ('user = "image"', False), ("network = false", False)],
)
def test_check_tells_of_a_port_that_its_user_may_not_have(keys: str, told: bool) -> None:
    found = agent_findings(parse(f'{REPORTS}command = ["serve"]\nport = 80\n{keys}', FILE))
    assert [one.detail.partition(",")[0] for one in found] == ["port: below 1024"] * told


def test_check_tells_of_a_folder_without_a_command(folder: Path) -> None:
    config = from_manifest(folder, {"image": "x"})
    (found,) = agent_findings(config)
    assert (found.state, found.detail) == (
        "warning",
        f"it has no command: there is no {folder}/handlers, and neither handlers nor a runner",
    )
    (folder / "handlers").mkdir()
    assert agent_findings(config) == []


# ---- what no container may have


@pytest.mark.parametrize(
    ("keys", "place", "reached"),
    [
        ('path = "."', "path", "penstock.toml"),
        ('path = "link"', "path", "penstock.toml"),
        ('path = "store/db.agents/x"', "path", "db.agents"),
        (
            'mounts = [{ source = "data", target = "/a" }, { source = "store", target = "/b" }]',
            "mounts[2]",
            "db",
        ),
        ('mounts = [{ source = "store/db", target = "/a" }]', "mounts[1]", "db"),
        ('mounts = [{ source = "store/db-wal", target = "/a" }]', "mounts[1]", "db-wal"),
        ('mounts = [{ source = "data/../penstock.toml", target = "/a" }]', "mounts[1]", "penstock.toml"),
        ('mounts = [{ source = "secrets", target = "/a" }]', "mounts[1]", "key"),
        ('mounts = [{ source = "/", target = "/a" }]', "mounts[1]", "penstock.toml"),
    ],
)
def test_no_container_gets_our_own_files(folder: Path, keys: str, place: str, reached: str) -> None:
    """Others' tasks are in the store, and the keys of all agents beside it."""
    home = folder.parent
    (home / "penstock.toml").touch()
    (home / "link").symlink_to(home)
    (home / "store" / "db.agents" / "x").mkdir(parents=True)
    text = f'store = "store/db"\n{MODEL}key_file = "secrets/key"\n{REPORTS}{keys}'
    (problem,) = told(text, home / "penstock.toml")
    assert f"agents.reports.{place}" in problem
    assert f" would show Penstock's own '{reached}' to the agent; name another folder" in problem


def test_what_lies_beside_our_own_files_may_be_mounted(folder: Path) -> None:
    (folder.parent / "penstock.database").mkdir()
    text = 'mounts = [{ source = "penstock.database", target = "/a" }, { source = "data", target = "/b" }]'
    assert len(agent(REPORTS + text, folder.parent / "penstock.toml").mounts) == 2


def test_the_keys_of_agents_of_a_shared_store_are_our_own_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    text = f'store = "postgresql://db/plant"\n{REPORTS}mounts = [{{ source = "{folder}", target = "/a" }}]'
    (problem,) = told(text, folder.parent / "penstock.toml")
    assert ".agents' to the agent" in problem


@pytest.mark.parametrize(
    ("name", "whose"), [("CLOUD_KEY", "has the key of host 'surtr'"), ("PENSTOCK_TOKEN", "is Penstock's own")]
)
def test_a_manifest_takes_no_key_that_the_config_does_not_give(folder: Path, name: str, whose: str) -> None:
    manifest = MANIFEST | {"env": ["TZ=UTC", name]}
    host = f'{MODEL}key_env = "CLOUD_KEY"\n'
    with pytest.raises(ConfigError) as caught:
        from_manifest(folder, manifest, host)
    (problem,) = caught.value.problems
    assert (
        f"path: manifest.json takes {name}, which {whose}; where it shall have it, say so: pass_env"
        in problem
    )
    given = from_manifest(folder, manifest, f'pass_env = ["{name}"]\n{host}')
    assert given.agents["reports"].pass_env == (name,)
    assert given.with_settings({}) == given


def refused(folder: Path, manifest: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        from_manifest(folder, manifest)
    return tuple(line.partition(":2: agents.reports.path: ")[2] for line in caught.value.problems)


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        ("{\n  nonsense", "manifest.json:2: is not JSON: "),
        ("[" * 100_000, "manifest.json: is nested too deeply"),
        ("[]", "manifest.json: must be an object"),
        ({"image": 3}, "manifest.json:1: image: must be the name of an image, not a number"),
        (MANIFEST | {"taskRunner": "queue"}, 'manifest.json:1: taskRunner: must be "http"; nothing else'),
        (MANIFEST | {"commands": []}, "manifest.json:1: commands: must be an object"),
        (MANIFEST | {"commands": {"run": 3}}, "manifest.json:1: commands.run: must be text, not a number"),
        (MANIFEST | {"commands": {"run": [3]}}, "manifest.json:1: commands.run: must be text, or a list"),
        (
            MANIFEST | {"commands": {"install": "apt-get update && apt-get install x"}},
            "manifest.json:1: commands.install: has '&&', which only a shell understands, and none reads it; put "
            'it in a script in this folder and say "sh /agent/install.sh"',
        ),
        (MANIFEST | {"commands": {"run": "echo $HOME"}}, "manifest.json:1: commands.run: has '$'"),
        (
            MANIFEST | {"commands": {"run": "echo 'x"}},
            "manifest.json:1: commands.run: cannot be split into words",
        ),
        (
            MANIFEST | {"commands": {"run": "A=1 node x"}},
            "manifest.json:1: commands.run: begins with a variable",
        ),
        (MANIFEST | {"env": "A"}, "manifest.json:1: env: must be a list"),
        (MANIFEST | {"env": [3]}, 'manifest.json:1: env[1]: must be "NAME" or "NAME=VALUE", not a number'),
        (MANIFEST | {"env": ["A TOKEN"]}, "manifest.json:1: env[1]: must be the name of a variable"),
        (
            MANIFEST | {"env": ["API_TOKEN=sk-1"]},
            "manifest.json:1: env[1]: a secret does not belong in this file",
        ),
    ],
)
def test_a_wrong_manifest_is_told_with_its_place(folder: Path, manifest: Any, problem: str) -> None:
    """Promise 7."""
    (found,) = [line for line in refused(folder, manifest) if line]
    assert found.startswith(problem)
    assert "sk-1" not in found


def test_a_manifest_that_is_no_text_or_too_long_is_refused(folder: Path) -> None:
    assert refused(folder, " " * 300_000)[0] == "manifest.json: is over 256 KiB; make it smaller"
    (folder / "manifest.json").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"manifest\.json: is not UTF-8 text"):
        parse('[agents.reports]\npath = "reports"', folder.parent / "penstock.toml")
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").mkdir()
    with pytest.raises(ConfigError, match=r"manifest\.json: cannot be read: Is a directory"):
        parse('[agents.reports]\npath = "reports"', folder.parent / "penstock.toml")
