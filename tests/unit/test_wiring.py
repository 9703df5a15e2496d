"""Which parts a config leads to."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.config import parse
from penstock.errors import ConfigError, UsageError
from penstock.wiring import make_adapters, open_store, read_config


class _NoClock:
    def now(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None: ...


async def test_a_python_host_finds_what_lies_beside_its_config(tmp_path: Path) -> None:
    (tmp_path / "beside_the_config.py").write_text("def double(n):\n    return 2 * n\n")
    config = tmp_path / "penstock.toml"
    config.write_text('[hosts.h]\ntype = "python"\ncall = "beside_the_config:double"\n')
    async with penstock.open(config) as p:
        result = await p.wait(await p.submit(penstock.Task("k", 21)))
    assert (result.state, result.value) == (penstock.State.DONE, 42)


def test_all_that_is_wrong_with_the_hosts_options_is_told_at_once(tmp_path: Path) -> None:
    """Promise 7: an adapter's problems come together, each with its host."""
    text = '[hosts.a]\ntype = "python"\n[hosts.b]\ntype = "command"\nargv = []\n'
    with pytest.raises(ConfigError) as caught:
        make_adapters(parse(text, tmp_path / "penstock.toml"), _NoClock())
    assert len(caught.value.problems) >= 2
    assert "hosts.a" in str(caught.value)
    assert "hosts.b" in str(caught.value)


def test_a_store_that_is_not_available_says_so(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text('store = "postgresql://somewhere/queue"\n')
    with pytest.raises(UsageError, match="not available"):
        open_store(read_config(path))
