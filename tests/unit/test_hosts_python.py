"""The python adapter: which function a kind calls, what is wrong with a config, what cannot be imported."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigError, PermanentError
from penstock.hosts.base import Call, Job
from penstock.hosts.python import PythonAdapter
from penstock.model import Host, Verdict
from tests.conformance.engine_rig import FUNCTIONS, Rig, python_host


def adapter(**options: Any) -> PythonAdapter:
    return PythonAdapter(Host("tools", "python", options=options))


def job(kind: str = "k", payload: Any = None) -> Job:
    return Job("t", 1, kind, payload, "tools", "default")


def test_one_function_for_all_kinds() -> None:
    work = adapter(call="pkg.mod:fn", path=["lib"]).work(job(payload={"a": 1}))
    vital = frozenset({"module", "function"})
    assert work == Call("pkg.mod:fn", {"a": 1}, isolated=False, search_path=("lib",), vital=vital)


def test_a_function_for_each_kind_and_one_for_the_rest() -> None:
    host = adapter(calls={"one": "m:one", "*": "m:rest"}, isolation="process")
    assert host.work(job("one")).target == "m:one"
    assert host.work(job("two")) == Call("m:rest", None, isolated=True, vital=frozenset({"module"}))
    assert adapter(calls={"one": "m:one", "two": "n:two"}).work(job("one")).vital == frozenset()


def test_a_kind_without_a_function_fails_for_good() -> None:
    with pytest.raises(PermanentError, match=r"hosts\.tools\.calls has no function for kind 'two'; add one"):
        adapter(calls={"one": "m:one"}).work(job("two"))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "hosts.tools.call: is missing"),
        (
            {"call": "m:f", "calls": {"k": "m:f"}},
            "hosts.tools.call: stands beside calls; give only one of them",
        ),
        ({"call": "m.f"}, 'hosts.tools.call: must be like "package.module:function"'),
        ({"call": "m:f g"}, 'hosts.tools.call: must be like "package.module:function"'),
        ({"calls": {"k": "m"}}, "hosts.tools.calls.k: must be like"),
        ({"calls": {"k": 1}}, "hosts.tools.calls.k: must be text in quotes, not a number"),
        ({"call": 1}, "hosts.tools.call: must be text in quotes, not a number"),
        ({"call": "m:f", "isolation": "none"}, 'must be "thread" or "process", not another text'),
        ({"call": "m:f", "path": "lib"}, "hosts.tools.path: must be a list of texts"),
    ],
)
def test_config_problems_have_place_and_remedy(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        adapter(**options)
    assert problem in str(error.value)


def test_all_config_problems_come_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        adapter(call=1, isolation=2, path=3)
    assert [problem.split(":")[0] for problem in error.value.problems] == [
        "hosts.tools.call",
        "hosts.tools.isolation",
        "hosts.tools.path",
    ]


async def test_check_finds_modules_without_importing_them(tmp_path: Path) -> None:
    package = tmp_path / "checked_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "inner.py").write_text("raise SystemExit('imported')")
    found = await adapter(call="checked_package.inner:f", path=[str(tmp_path)]).check()
    assert found.up
    missing = await adapter(call="checked_package.other:f", path=[str(tmp_path)]).check()
    assert not missing.up
    assert "add its folder to hosts.tools.path" in missing.detail
    assert not (await adapter(call="no_such_module.x:f").check()).up
    assert (await adapter(call="os.path:join").check()).up
    assert "checked_package" not in sys.modules


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_functions_that_are_not_there(tmp_path: Path, isolation: str) -> None:
    (tmp_path / "needs_more.py").write_text("import no_such_library")
    (tmp_path / "broken.py").write_text("def f(:")
    calls = {
        "module": "no_such_module.sub:f",
        "submodule": f"{FUNCTIONS}.sub:f",
        "function": f"{FUNCTIONS}:nothing",
        "constant": f"{FUNCTIONS}:NOT_A_FUNCTION",
        "library": "needs_more:f",
        "syntax": "broken:f",
    }
    host = Host(
        "host", "python", 1, options={"calls": calls, "isolation": isolation, "path": [str(tmp_path)]}
    )
    async with Rig(host) as rig:
        errors = {}
        for kind in calls:
            outcome = await rig.outcome_of("host", {}, kind=kind)
            assert outcome.verdict is Verdict.PERMANENT
            errors[kind] = outcome.error or ""
    assert errors["module"].startswith("no module 'no_such_module' for 'no_such_module.sub:f'; install it")
    assert errors["submodule"].startswith(f"no module '{FUNCTIONS}.sub'")
    assert "no function 'nothing' in " in errors["function"]
    assert "host_functions.py; correct the host's `call`" in errors["function"]
    assert "no function 'NOT_A_FUNCTION'" in errors["constant"]
    assert "it needs module 'no_such_library'; install that" in errors["library"]
    assert errors["syntax"].startswith("SyntaxError: ")


async def test_a_module_that_appears_later_is_found(tmp_path: Path) -> None:
    host = python_host("host", "late_module:f", path=[str(tmp_path)])
    async with Rig(host) as rig:
        missing = await rig.outcome_of("host", 1)
        assert (missing.verdict, missing.needs_fix) == (Verdict.HOST, True)
        (tmp_path / "late_module.py").write_text("def f(x):\n    return x + 1\n")
        assert (await rig.outcome_of("host", 1)).value == 2


async def test_an_attempt_that_waits_for_an_import_can_be_stopped(tmp_path: Path) -> None:
    """A module that hangs while it is imported."""
    (tmp_path / "slow_module.py").write_text(
        "with open(__file__ + '.fifo') as fifo:\n    fifo.read()\ndef f(x):\n    return x\n"
    )
    fifo = tmp_path / "slow_module.py.fifo"
    os.mkfifo(fifo)
    host = Host(
        "host",
        "python",
        2,
        options={
            "calls": {"slow": "slow_module:f", "*": f"{FUNCTIONS}:sync"},
            "path": [str(tmp_path)],
        },
    )
    async with Rig(host) as rig:
        rig.start("host", 1, "first", kind="slow")
        rig.start("host", 2, "second", kind="slow")
        rig.engine.stop("first", 1)
        assert (await rig.outcome("first")).verdict is Verdict.CANCELLED
        assert (await rig.outcome_of("host", {"act": "return", "value": 1})).value == 1
        fifo.write_text("go on")
        assert (await rig.outcome("second")).value == 2
