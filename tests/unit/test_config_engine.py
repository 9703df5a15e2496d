"""[engine], and which nodes a host has: what is read, what is refused with its line, and what goes to no node."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock import wiring
from penstock.config import as_document, parse, read_document
from penstock.config.own_files import kept_here
from penstock.dispatcher import patience
from penstock.errors import ConfigError, StoreError, UsageError
from penstock.model import RayNodes

HOST = '[hosts.a]\ntype = "python"\ncall = "m:f"\n'
RAY = '[engine]\ntype = "ray"\n'

WHOLE = (
    HOST
    + 'ray = { resources = { gpu_node = 0.5 }, labels = { zone = "in(a, b)" }, num_cpus = 2 }\n'
    + RAY
    + """address = "ray://head:10001"
namespace = "team"
working_dir = "code"
excludes = ["data/"]
py_modules = ["lib/mine"]
pip = ["numpy==2.3.0"]
env = { TZ = "UTC" }
pass_env = ["HF_TOKEN"]
runtime_env = { image_uri = "x", config = { setup_timeout_seconds = 60 } }
calls_url = "http://front:8787/"
start_s = 20
idle_s = 0
"""
)


def told(text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse(text)
    return [problem.partition(":")[2] for problem in refused.value.problems]


def test_without_a_word_attempts_run_here() -> None:
    config = parse(HOST)
    assert not config.engine.is_ray
    assert config.plant.hosts[0].ray is None
    assert "engine" not in as_document(config)


def test_every_key_is_read_and_written_back(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    config = parse(WHOLE, path)
    engine = config.engine
    assert (engine.address, engine.namespace, engine.start_s, engine.idle_s) == (
        "ray://head:10001",
        "team",
        20,
        0,
    )
    assert engine.calls_url == "http://front:8787"
    assert engine.working_dir == str(tmp_path / "code")
    assert engine.py_modules == (str(tmp_path / "lib/mine"),)
    assert (engine.excludes, engine.pip, engine.pass_env) == (("data/",), ("numpy==2.3.0",), ("HF_TOKEN",))
    assert engine.env == {"TZ": "UTC"}
    assert engine.runtime_env == {"image_uri": "x", "config": {"setup_timeout_seconds": 60}}
    assert config.plant.hosts[0].ray == RayNodes({"gpu_node": 0.5}, {"zone": "in(a, b)"}, 2)
    again = read_document(as_document(config), path)
    assert again.engine == engine
    assert again.plant == config.plant


def test_one_word_brings_the_work_back_to_this_machine() -> None:
    config = parse(WHOLE).with_settings({"engine.type": "local"})
    assert not config.engine.is_ray
    assert config.engine.address == "ray://head:10001"


@pytest.mark.parametrize("address", ["auto", "head:6379", "ray://head:10001", "10.0.0.1:6379", "[::1]:6379"])
def test_addresses(address: str) -> None:
    assert parse(f'{RAY}address = "{address}"\n').engine.address == address


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[engine]\ntype = "dask"', '2: engine.type: must be "local" or "ray", not another text'),
        ('[engine]\naddress = "auto"', '1: engine: has no type; add type = "ray"'),
        (f"{RAY}adress = 1", "3: engine.adress: unknown key; did you mean 'address'?"),
        (f'{RAY}address = "http://head:8265"', '3: engine.address: must be "auto" for the cluster on this machine'),
        (f'{RAY}address = "head"', '3: engine.address: must be "auto" for the cluster on this machine'),
        (f'{RAY}namespace = "a b"', "3: engine.namespace: must be a name"),
        (f"{RAY}pip = [1]", "3: engine.pip[1]: must be text in quotes, not a number"),
        (f'{RAY}env = {{ HF_TOKEN = "x" }}', "3: engine.env.HF_TOKEN: a secret does not belong in this file"),
        (f'{RAY}pass_env = ["A-B"]', "3: engine.pass_env[1]: must be the name of a variable"),
        (f'{RAY}runtime_env = {{ pip = ["x"] }}', "3: engine.runtime_env.pip: belongs beside runtime_env"),
        (f"{RAY}start_s = 0", "3: engine.start_s: must be a number above 0"),
        (f"{HOST}ray = {{}}", '4: hosts.a.ray: says which nodes of a Ray cluster it runs on; add [engine] with'),
        (f"{RAY}{HOST}ray = {{ gpus = 1 }}", "6: hosts.a.ray.gpus: unknown key"),
        (f"{RAY}{HOST}ray = {{ resources = {{ CPU = 1 }} }}", "6: hosts.a.ray.resources.CPU: is no resource here"),
        (f"{RAY}{HOST}ray = {{ resources = {{ x = 0 }} }}", "6: hosts.a.ray.resources.x: must be a number above 0"),
        (f"{RAY}{HOST}ray = {{ labels = {{ zone = 1 }} }}", "6: hosts.a.ray.labels.zone: must be text"),
        (f'{RAY}{HOST}ray = {{ labels = {{ "" = "a" }} }}', "6: hosts.a.ray.labels.'': is not a label"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line_and_a_remedy(text: str, problem: str) -> None:
    (only,) = told(text)
    assert only.startswith(problem), only


def test_own_files_stay_out_of_what_is_copied_to_nodes(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    path = tmp_path / "penstock.toml"
    config = parse(f'store = "data/my queue.db"\n{RAY}working_dir = "."\n', path)
    kept = kept_here(config, str(tmp_path))
    assert set(kept) >= {"/penstock.toml", "/penstock.env", "/data/my\\ queue.db", "/data/my\\ queue.db-*"}
    assert "/my\\ queue.db.*" in kept_here(config, str(tmp_path / "data"))
    assert kept_here(config, str(tmp_path / "elsewhere")) == ()


def test_keys_of_the_database_stay_out_of_it_too(tmp_path: Path) -> None:
    files = f"sslkey={tmp_path}/tls/client.key&passfile={tmp_path}/pass%20file&sslrootcert={tmp_path}/ca.pem"
    config = parse(f'store = "postgresql://db/penstock?{files}"\n{RAY}', tmp_path / "penstock.toml")
    kept = set(kept_here(config, str(tmp_path)))
    assert kept == {"/penstock.toml", "/penstock.env", "/tls/client.key", "/pass\\ file"}


def test_ray_that_is_not_installed_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'penstock-ai\[ray\]'"):
        wiring._cluster(parse(RAY), wiring.NO_WAYS, None)  # type: ignore[arg-type]


async def test_who_takes_over_waits_for_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its secret, of which the names of workers are made, is read then."""
    monkeypatch.setattr(patience, "_AGAIN_S", 0.0)

    class Away:
        asked = 0

        async def secret(self, name: str) -> bytes:
            self.asked += 1
            if self.asked < 3:
                raise StoreError("the server does not answer")
            return name.encode()

    cluster = wiring._cluster(parse(RAY), wiring.NO_WAYS, Away())  # type: ignore[arg-type]
    assert await cluster.secret() == b"ray"


def test_secrets_are_not_told_by_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 8: it writes what it is given into logs that everybody may read."""
    monkeypatch.setenv("HF_TOKEN", "hunter22")
    monkeypatch.delenv("UNSET", raising=False)
    secret = {
        "DB": "postgresql://db/q?password=hunter23",
        "PGPASSWORD": "hunter24",
        "OPTS": "-x http://a:b@c",
    }
    plain = {"TZ": "UTC", "ODD": "http://[", "PYTHONPATH": "/srv:/opt"}
    env = ", ".join(f'{name} = "{value}"' for name, value in (secret | plain).items())
    told = f"env = {{ {env} }}\n"
    text = f'{RAY}{told}pass_env = ["HF_TOKEN", "UNSET"]'
    cluster = wiring._cluster(parse(text), wiring.NO_WAYS, SimpleNamespace(secret=print))
    assert cluster.runtime_env["env_vars"] == plain
    assert cluster.variables == {"HF_TOKEN": "hunter22", **secret}
    assert "hunter22" not in repr(cluster)


def test_a_config_loads_no_ray() -> None:
    """Looked at in a process of its own: other tests of this one may have loaded it."""
    looked = "parse(sys.argv[1]).engine.is_ray, 'ray' in sys.modules"
    told = f"import sys; from penstock.config import parse; print({looked})"
    done = subprocess.run([sys.executable, "-c", told, WHOLE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_hosts_whose_attempts_outlive_their_dispatcher_are_known() -> None:
    """Those that a cluster runs; calls of models stay here."""
    model = '[hosts.m]\ntype = "openai"\nurl = "http://127.0.0.1:1/v1"\n'
    assert parse(HOST + model + RAY).plant.outliving == ("a",)
    assert parse(HOST + model).plant.outliving == ()
