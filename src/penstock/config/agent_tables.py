"""[agents.NAME] → Agent, with what the manifest of its folder says; and back to the table it could be read from.

A key of the table goes before the manifest's, also when it is empty.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.config import keys
from penstock.config.agents import AGENT_FOLDER, Agent, Limits, Mount, Pool, Privileges
from penstock.config.manifests import (
    MANIFEST,
    Manifest,
    ManifestError,
    is_image,
    is_word,
    read_env,
    read_manifest,
    variable_problem,
)
from penstock.config.problems import Near, kind_alone, quoted
from penstock.config.tables import Table
from penstock.model import Host

IMAGES_USER = "image"  # user: the one that the image names
_ARGV_LIKE = '["python3", "render.py"]'
_MOUNT_LIKE = '{ source = "data", target = "/data" }'
_DEFAULT = Agent("", "")
_OWN_PREFIX = "PENSTOCK_"


def read_agents(top: Table, folder: Path, hosts: Mapping[str, Host]) -> dict[str, Agent]:
    secrets = {
        str(host.options["key_env"]): name for name, host in hosts.items() if "key_env" in host.options
    }
    agents = {
        name: _read_agent(name, table, folder, secrets)
        for name, table in top.named_tables("agents", keys.MAX_AGENTS)
    }
    queues: dict[str, str] = {}
    for agent in agents.values():
        if agent.queue is not None and (other := queues.setdefault(agent.queue, agent.name)) != agent.name:
            message = f"is the queue of agent {quoted(other)}; give each a folder of its own"
            top.refuse(message, "agents", agent.name, "queue")
    return agents


def _read_agent(name: str, table: Table, folder: Path, secrets: Mapping[str, str]) -> Agent:
    _check_keys(table)
    path = _path(table, "path", folder)
    manifest = _manifest(table, path)
    handlers, runner = _handlers(table), _argv(table, "runner", ())
    by_us = bool(handlers or runner)
    command = _argv(table, "command", () if by_us else manifest.run or ())
    if command and by_us:
        which = "handlers" if handlers else "runner"
        table.refuse("is for Penstock's agent server, whose place `command` takes; give one of them", which)
    own = "command" not in table and bool(command)  # a server of the manifest's
    if not (command or by_us or path):
        for key in ("install", "update"):
            if table.raw.get(key):
                message = (
                    "what the image would start is not known; add what is to run after it: command = […]"
                )
                table.refuse(message, key)
    return Agent(
        name=name,
        image=_image(table, manifest, path),
        command=command,
        handlers=handlers,
        runner=runner,
        python=table.text("python", _DEFAULT.python),
        folder=path,
        install=_argv(table, "install", manifest.install or ()),
        update=_argv(table, "update", manifest.update or ()),
        env=dict(manifest.env) | read_env(table),
        pass_env=_pass_env(table, manifest, secrets),
        port=table.whole("port", _DEFAULT.port, keys.AGENT_PORT),
        health=_health(table),
        plain=table.flag("plain", own),
        network=table.flag("network", _DEFAULT.network),
        mounts=_mounts(table, folder, has_folder=path is not None),
        limits=_limits(table),
        privileges=_privileges(table),
        pool=_pool(table),
        queue=_path(table, "queue", folder),
    )


def _check_keys(table: Table) -> None:
    for key in table.raw:
        if key in keys.AGENT:
            continue
        if key.lower() in keys.SECRETS:
            message = "a secret does not belong in this file; keep it in an environment variable"
            table.refuse(f'{message}: pass_env = ["ITS_NAME"]', key)
        else:
            table.refuse("unknown key", key, near=Near(key, keys.AGENT, "an agent has"))


def _manifest(table: Table, path: str | None) -> Manifest:
    try:
        return (None if path is None else read_manifest(path)) or Manifest()
    except ManifestError as error:
        for problem in error.problems:
            table.refuse(problem, "path")
        return Manifest(image=_DEFAULT.image)  # whether it names one is not known


def _image(table: Table, manifest: Manifest, path: str | None) -> str:
    if "image" not in table:
        if manifest.image is None:
            where = "" if path is None else f", and no {MANIFEST} with one is in its path"
            table.refuse(f'has no image{where}; add image = "…", such as "localhost/reports:latest"')
        return manifest.image or _DEFAULT.image
    image = table.text("image", _DEFAULT.image)
    if image and not is_image(image):
        table.refuse('must be the name of an image, such as "localhost/reports:latest"', "image")
    return image


def _path(table: Table, key: str, folder: Path) -> str | None:
    path = table.text(key, None)
    return None if path is None else os.path.normpath(folder / os.path.expanduser(path))


# ---- what runs


def _argv(table: Table, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    return _words(table, (key,), table.raw[key]) if key in table else default


def _words(table: Table, place: tuple[str, ...], value: Any) -> tuple[str, ...]:
    """The words of a command; an empty list is none."""
    if isinstance(value, str):
        table.refuse(f"must be a list of words like {_ARGV_LIKE}, not text: no shell reads it", *place)
    elif not isinstance(value, list | tuple) or len(value) > keys.MAX_WORDS:
        most = f"at most {keys.MAX_WORDS} words like {_ARGV_LIKE}"
        table.refuse(f"must be a list of {most}, not {kind_alone(value)}", *place)
    elif value and not value[0]:
        table.refuse("must begin with a program", *place)
    elif wrong := [number for number, word in enumerate(value) if not is_word(word)]:
        table.refuse(f"must be text in quotes, not {kind_alone(value[wrong[0]])}", *place, wrong[0])
    else:
        return tuple(value)
    return ()


def _handlers(table: Table) -> dict[str, tuple[str, ...]]:
    inner = table.table("handlers", f"{{ render = {_ARGV_LIKE} }}")
    found: dict[str, tuple[str, ...]] = {}
    for name, value in {} if inner is None else inner.raw.items():
        assert inner is not None
        if not keys.COMMAND.fullmatch(name):
            inner.refuse(f"is not a command: {keys.COMMAND_RULE}", name)
        elif argv := _words(inner, (name,), value):
            found[name] = argv
        elif value in ([], ()):
            inner.refuse(f"is empty; give the words of its command, like {_ARGV_LIKE}", name)
    return found


def _pass_env(table: Table, manifest: Manifest, secrets: Mapping[str, str]) -> tuple[str, ...]:
    """`secrets`: hosts by the variables of their keys. Who wrote a folder is not who may give those away."""
    given = table.texts("pass_env", (), most=keys.MAX_VARIABLES)
    for name in given:
        if (wrong := variable_problem(name, None)) is not None:
            table.refuse(wrong, "pass_env")
    for name in manifest.pass_env:
        whose = f"has the key of host {quoted(secrets[name])}" if name in secrets else "is Penstock's own"
        if name not in given and (name in secrets or name.startswith(_OWN_PREFIX)):
            table.refuse(
                f'{MANIFEST} takes {name}, which {whose}; where it shall have it, say so: pass_env = ["{name}"]',
                "path",
            )
    return tuple(dict.fromkeys((*manifest.pass_env, *given)))


def _health(table: Table) -> str:
    health = table.text("health", _DEFAULT.health)
    if not health.startswith("/") or " " in health or not health.isascii():
        table.refuse('must be a path like "/health"', "health")
        return _DEFAULT.health
    return health


# ---- what it may use


def _mounts(table: Table, folder: Path, *, has_folder: bool) -> tuple[Mount, ...]:
    given = table.raw.get("mounts", ())
    if not isinstance(given, list | tuple) or len(given) > keys.MAX_MOUNTS:
        most = f"at most {keys.MAX_MOUNTS} tables like {_MOUNT_LIKE}"
        table.refuse(f"must be a list of {most}, not {kind_alone(given)}", "mounts")
        return ()
    found: dict[str, Mount] = {}
    if has_folder:
        found[AGENT_FOLDER] = Mount("", AGENT_FOLDER)
    for number, one in enumerate(given):
        if not isinstance(one, Mapping):
            table.refuse(f"must be a table like {_MOUNT_LIKE}, not {kind_alone(one)}", "mounts", number)
            continue
        inner = Table(one, (*table.path, "mounts", number), table.problems)
        mount = _mount(inner, folder)
        if mount is not None and found.setdefault(mount.target, mount) is not mount:
            inner.refuse("something else is mounted there; choose another", "target")
    return tuple(mount for mount in found.values() if mount.source)


def _mount(table: Table, folder: Path) -> Mount | None:
    table.only(keys.MOUNT)
    read_only = table.flag("read_only", True)
    source, target = _path(table, "source", folder), table.text("target", None)
    for key in ("source", "target"):
        if key not in table:
            table.refuse(f"has no {key}; give both, like {_MOUNT_LIKE}")
    if target is None:
        return None
    normal = os.path.normpath(target)
    if not target.startswith("/") or target.startswith("//") or normal == "/" or ":" in target:
        table.refuse('must be a path inside the container, like "/data"', "target")
        return None
    return None if source is None else Mount(source, normal, read_only)


def _limits(table: Table) -> Limits:
    default = _DEFAULT.limits
    inner = table.table("limits", "{ cpus = 1.0, memory_mb = 512 }")
    if inner is None:
        return default
    inner.only(keys.AGENT_LIMITS)
    return Limits(
        cpus=inner.number("cpus", None, keys.CPUS),
        memory_mb=inner.number("memory_mb", None, keys.MEGABYTES),
        pids=inner.whole("pids", default.pids, keys.PIDS) or None,
        tmp_mb=inner.number("tmp_mb", default.tmp_mb, keys.TMP_MB),
    )


def _privileges(table: Table) -> Privileges:
    default = _DEFAULT.privileges
    capabilities = table.texts("capabilities", (), most=100)
    for number, name in enumerate(capabilities):
        if not keys.CAPABILITY.fullmatch(name):
            table.refuse('must be a capability, such as "NET_BIND_SERVICE"', "capabilities", number)
    user = table.text("user", default.user)
    if user is not None and (":" in (user[0], user[-1]) or user.count(":") > 1 or " " in user):
        table.refuse(f'must be a user of the image, like "1000:1000", or "{IMAGES_USER}" for its own', "user")
    return Privileges(
        read_only=table.flag("read_only", default.read_only),
        new_privileges=table.flag("new_privileges", default.new_privileges),
        capabilities=capabilities,
        user=None if user == IMAGES_USER else user,
    )


def _pool(table: Table) -> Pool:
    default = _DEFAULT.pool
    return Pool(
        containers=table.whole("containers", default.containers, keys.CONTAINERS),
        concurrency=table.whole("concurrency", default.concurrency, keys.CONTAINERS),
        warm=table.whole("warm", default.warm, keys.PAUSED),
        idle_s=table.number("idle_s", default.idle_s, keys.DELAY),
        max_tasks=table.whole("max_tasks", default.max_tasks, keys.COUNT),
        max_age_s=table.number("max_age_s", default.max_age_s, keys.SECONDS),
        start_s=table.number("start_s", default.start_s, keys.SECONDS),
    )


# ---- and back


def agent_document(agent: Agent) -> dict[str, Any]:
    """The table that this agent would be read from: what is not as usual."""
    usual = _flat(_DEFAULT)
    # Beside a manifest these are said in any case: what is not said is as the manifest says.
    said = ("command", "install", "update", "plain") if agent.folder is not None else ()
    return {key: value for key, value in _flat(agent).items() if key in said or value != usual.get(key)}


def _flat(agent: Agent) -> dict[str, Any]:
    limits, closed = agent.limits, agent.privileges
    whole: dict[str, Any] = {
        "image": agent.image,
        "path": agent.folder,
        "handlers": {name: list(argv) for name, argv in agent.handlers.items()},
        "env": dict(agent.env),
        "mounts": [
            {"source": one.source, "target": one.target, "read_only": one.read_only} for one in agent.mounts
        ],
        "limits": {
            "cpus": limits.cpus,
            "memory_mb": limits.memory_mb,
            "pids": limits.pids or 0,
            "tmp_mb": limits.tmp_mb,
        },
        "user": closed.user or IMAGES_USER,
    }
    whole["limits"] = {key: value for key, value in whole["limits"].items() if value is not None}
    for holder in (agent, closed, agent.pool):
        for key in keys.AGENT:
            if key not in whole and hasattr(holder, key):
                value = getattr(holder, key)
                whole[key] = list(value) if isinstance(value, tuple) else value
    return {key: value for key, value in whole.items() if value is not None}
