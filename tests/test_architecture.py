"""The house rules that no linter knows: purity, owners of asyncio tasks, catch-alls, names, sleeps.

Each rule is a function from a parsed module to the lines that break it, and each is shown to find a fault.
Where a rule has exceptions, they stand in a table here with their reason.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

import penstock

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "penstock"

PURE = ("model.py", "lifecycle.py", "scheduling", "diagnosis")
IMPURE = frozenset(
    {"asyncio", "time", "datetime", "random", "secrets", "uuid"}
    | {"os", "pathlib", "shutil", "tempfile", "logging", "socket", "select", "signal"}
    | {"threading", "multiprocessing", "concurrent", "subprocess", "sqlite3", "asyncpg", "aiohttp"}
)

# Who may make an asyncio task outside a TaskGroup, and who awaits it.
TASK_OWNERS: Mapping[str, str] = {
    "src/penstock/agents/engine/creating.py": "the function that makes it awaits it, also when cancelled",
    "src/penstock/agents/agent_server.py": "the service awaits its connections as it ends",
    "src/penstock/agents/starts/making.py": "to_its_end() awaits it, also when cancelled",
    "src/penstock/agents/starts/store_lock.py": "free() cancels the renewing and awaits it",
    "src/penstock/store/postgres_link.py": "_watched() cancels the look at the server and awaits it",
    "src/penstock/agents/keeper/keeping.py": "close() cancels the looking after containers and awaits it",
    "src/penstock/dispatcher/probes.py": "close() cancels the sampling and awaits it",
    "src/penstock/engine/cluster/link.py": "close() cancels the keeping of the line and awaits it",
    "src/penstock/engine/local.py": "close() cancels the timers and awaits them",
    "src/penstock/engine/processes.py": "close() awaits the pool that is being made",
    "src/penstock/engine/programs.py": "the sweep runs on the programs' own loop, which awaits it as it ends",
    "src/penstock/engine/ray.py": "close() cancels the looking for workers and awaits it",
    "src/penstock/hosts/library_process.py": "close() cancels the warming and awaits it",
    "src/penstock/hosts/local_server.py": "close() cancels the start that is under way and awaits it",
    "src/penstock/web/calls.py": "the call that makes it awaits it before it is over itself",
    "src/penstock/engine/timers.py": "the function that makes the sleeper awaits it, also when cancelled",
}

# Who may catch everything. Only code that runs what users wrote does, and it records what it caught.
CATCH_ALL: Mapping[str, str] = {
    "src/penstock/agents/keeper/keeping.py": "a keeper that fails is logged whole, and begins anew",
    "src/penstock/council/library/formats.py": "a damaged PDF makes its reader raise anything: it is told",
    "src/penstock/dispatcher/background.py": "a thread's error is raised where somebody waits for it",
    "src/penstock/dispatcher/health.py": "a plug-in's check: whatever it raises is an answer",
    "src/penstock/dispatcher/probes.py": "a user's probe: whatever it raises is a failed reading",
    "src/penstock/engine/callables.py": "an attempt begins with the import of user code",
    "src/penstock/engine/calls.py": "runs the attempt: whatever user code raises becomes its outcome",
    "src/penstock/engine/cluster/driver.py": "Ray may raise anything: whoever asked for it is told",
    "src/penstock/engine/cluster/shop.py": "runs plain functions; what its own beginning raises goes to its maker",
    "src/penstock/engine/local.py": "an attempt begins with a payload that its adapter may refuse",
    "src/penstock/engine/loops.py": "attempts and what they leave behind run on its loop",
    "src/penstock/engine/outcomes.py": "describes what user code raised, whose own __str__ may raise as well",
    "src/penstock/hosts/researcher_child.py": "runs the attempt: whatever the package raises is told to its parent",
    "src/penstock/setup/checkup.py": "an adapter of a plug-in may raise anything: it is told as a finding",
    "src/penstock/web/board_process.py": "whatever ends the board is told to those who look; the work goes on",
    "src/penstock/web/board/news.py": "a page that cannot be brought up to date is logged, and hurts no other",
    "src/penstock/store/reader.py": "a thread's error is handed to the caller who awaits the answer",
}

# Test files that hold user code whose very point is to block or to take time.
SLEEPERS: Mapping[str, str] = {}

VAGUE_NAMES = frozenset({"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"})
# Other words for task, attempt, host, lane, gate and run.
SYNONYMS = frozenset(
    {"job", "jobs", "todo", "workitem", "workitems", "execution", "executions", "trial", "trials"}
    | {"backend", "backends", "node", "nodes", "bulkhead", "bulkheads", "family", "families"}
    | {"semaphore", "semaphores", "valve", "valves", "batch", "batches"}
)

Rule = Callable[[ast.Module], Iterator[tuple[int, str]]]


# ---- the rules


def impure_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module and not node.level else []
        else:
            continue
        for name in names:
            if name.partition(".")[0] in IMPURE:
                yield node.lineno, f"imports {name}"


def unowned_tasks(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        call = ast.unparse(node.func)
        maker = call.rpartition(".")[2]
        # A TaskGroup's own create_task is the right way: it awaits what it makes.
        by_group = "." in call and "loop" not in call and not call.startswith("asyncio.")
        if maker == "ensure_future" or (maker == "create_task" and not by_group):
            yield node.lineno, f"{call}() without an owner: use a TaskGroup"


def catch_alls(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        last = node.body[-1]
        if isinstance(last, ast.Raise) and last.exc is None:
            continue  # clean-up that raises again hides nothing
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        names = {"everything" if kind is None else ast.unparse(kind) for kind in caught}
        for name in names & {"everything", "Exception", "BaseException"}:
            yield node.lineno, f"catches {name}"


def called(node: ast.Call) -> str:
    """A name with its dots, without the text of what it is called on, which is long in coming."""
    match node.func:
        case ast.Name(name) | ast.Attribute(ast.Call(), name):
            return name
        case ast.Attribute(ast.Name(owner), name):
            return f"{owner}.{name}"
    return ast.unparse(node.func)


def shells(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        call = called(node)
        if call in {"os.system", "os.popen"} or call.endswith("create_subprocess_shell"):
            yield node.lineno, f"{call}() runs a shell: give an argument list"
        for keyword in node.keywords:
            if keyword.arg == "shell" and ast.unparse(keyword.value) != "False":
                yield node.lineno, f"{call}(shell=…): give an argument list"


def sleeps(tree: ast.Module) -> Iterator[tuple[int, str]]:
    plain = {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in {"time", "asyncio"}
        for alias in node.names
        if alias.name == "sleep"
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        call = called(node)
        owner = plain.get(call) or (call.removesuffix(".sleep") if call.endswith(".sleep") else None)
        how_long = ", ".join(map(ast.unparse, node.args))
        if owner == "time" or (owner == "asyncio" and how_long != "0"):
            yield node.lineno, f"{call}({how_long}): use the manual clock or a signal"


def missing_docstring(tree: ast.Module) -> Iterator[tuple[int, str]]:
    if tree.body and not ast.get_docstring(tree):
        yield 1, "does not open with what it decides and for whom"


# ---- where they hold


# A file without any of these words keeps the rule: to parse all of them takes long, and to keep them much room.
WORDS: Mapping[Rule, Sequence[str]] = {
    unowned_tasks: ("ensure_future", "create_task"),
    catch_alls: ("except",),
    shells: ("shell", "os.system", "os.popen"),
    sleeps: ("sleep",),
}


def may_break(rule: Rule, text: str) -> bool:
    if rule is missing_docstring:
        return not text.startswith('"""')
    return rule not in WORDS or any(word in text for word in WORDS[rule])


def broken(rule: Rule, path: Path) -> list[tuple[int, str]]:
    text = path.read_text(encoding="utf-8")
    return list(rule(ast.parse(text, str(path)))) if may_break(rule, text) else []


def files(*places: Path) -> list[Path]:
    found = [f for place in places for f in ([place] if place.is_file() else place.rglob("*.py"))]
    assert found, f"no Python files in {places}"
    return sorted(found)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def breaches(rule: Rule, paths: list[Path], exceptions: Mapping[str, str] | None = None) -> list[str]:
    excepted = exceptions or {}
    return [
        f"{name_of(path)}:{line} {what}"
        for path in paths
        if name_of(path) not in excepted
        for line, what in broken(rule, path)
    ]


OURS = files(PACKAGE)
TESTS = files(ROOT / "tests")
TOOLS = files(ROOT / "tools", ROOT / "benchmarks")


def test_the_core_is_pure() -> None:
    assert not breaches(impure_imports, files(*(PACKAGE / part for part in PURE)))


def test_asyncio_tasks_have_owners() -> None:
    assert not breaches(unowned_tasks, OURS, TASK_OWNERS)


def test_only_attempts_are_caught_whole() -> None:
    """Promise 7: errors of ours propagate to where they are told."""
    assert not breaches(catch_alls, OURS, CATCH_ALL)


def test_no_shell() -> None:
    assert not breaches(shells, OURS + TESTS + TOOLS)


def test_tests_do_not_sleep() -> None:
    assert not breaches(sleeps, TESTS, SLEEPERS)


def test_modules_say_what_they_decide() -> None:
    assert not breaches(missing_docstring, OURS + TESTS + TOOLS)


@pytest.mark.parametrize(
    ("rule", "exceptions"),
    [(unowned_tasks, TASK_OWNERS), (catch_alls, CATCH_ALL), (sleeps, SLEEPERS)],
    ids=["owners", "catch-alls", "sleepers"],
)
def test_every_exception_is_still_needed(rule: Rule, exceptions: Mapping[str, str]) -> None:
    paths = {name: ROOT / name for name in exceptions}
    assert not [name for name, path in paths.items() if not path.is_file() or not broken(rule, path)]
    assert all(exceptions.values()), "an exception without a reason"


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        (impure_imports, "import time", "import math"),
        (impure_imports, "from os.path import join", "from penstock.model import Task"),
        (impure_imports, "def f():\n    import random", "import heapq"),
        (unowned_tasks, "asyncio.create_task(f())", "group.create_task(f())"),
        (unowned_tasks, "asyncio.get_running_loop().create_task(f())", "asyncio.run(f())"),
        (unowned_tasks, "create_task(f())", "self._group.create_task(f())"),
        (unowned_tasks, "asyncio.ensure_future(f())", "await f()"),
        (catch_alls, "try: f()\nexcept: pass", "try: f()\nexcept ValueError: pass"),
        (catch_alls, "try: f()\nexcept Exception: g()", "try: f()\nexcept Exception:\n    g()\n    raise"),
        (catch_alls, "try: f()\nexcept (OSError, Exception): g()", "try: f()\nexcept OSError: g()"),
        (shells, "run('ls', shell=True)", "run(['ls'], shell=False)"),
        (shells, "os.system('ls')", "run(['ls'])"),
        (sleeps, "import time\ntime.sleep(1)", "clock.sleep(1)"),
        (sleeps, "asyncio.sleep(0.1)", "asyncio.sleep(0)"),
        (sleeps, "from time import sleep as doze\ndoze(2)", "asyncio.wait_for(event.wait(), 1)"),
        (missing_docstring, "x = 1", "'''Decides x.'''\nx = 1"),
    ],
)
def test_each_rule_finds_its_fault(rule: Rule, bad: str, good: str) -> None:
    assert list(rule(ast.parse(bad)))
    assert may_break(rule, bad)
    assert not list(rule(ast.parse(good)))


# ---- names


def test_module_names_are_nouns_of_the_field() -> None:
    places = [path.relative_to(ROOT) for path in OURS + TESTS + TOOLS]
    vague = VAGUE_NAMES | SYNONYMS
    bad = [
        str(place)
        for place in places
        for part in place.with_suffix("").parts
        if vague & set(part.removeprefix("test_").split("_"))
    ]
    assert not bad


def test_public_names_are_complete_and_sorted() -> None:
    declared = list(getattr(penstock, "__all__", []))
    found = {
        name
        for name, value in vars(penstock).items()
        if not name.startswith("_") and not isinstance(value, ModuleType) and name != "annotations"
    }
    missing = found - set(declared)
    assert not missing, "public, but not in __all__"
    assert [name for name in declared if not hasattr(penstock, name)] == []

    def place(name: str) -> tuple[int, str]:  # as ruff sorts: CONSTANTS, Classes, the rest
        return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name

    assert declared == sorted(set(declared), key=place)


# ---- the suite itself


SKIPS = {
    "test_inside.py": "import pytest\n\ndef test_it():\n    pytest.skip('no')\n",
    "test_marked.py": "import pytest\n\n@pytest.mark.skip(reason='no')\ndef test_it():\n    pass\n",
    "test_module.py": "import pytest\n\npytest.importorskip('no_such_module')\n\ndef test_it():\n    pass\n",
    "test_expected.py": "import pytest\n\n@pytest.mark.xfail\ndef test_it():\n    assert False\n",
}


@pytest.mark.parametrize(
    ("required", "ending"), [("1", "1 failed, 1 xfailed, 2 errors"), ("0", "3 skipped, 1 xfailed")]
)
def test_ci_allows_no_skips(tmp_path: Path, required: str, ending: str) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name, body in SKIPS.items():
        (tmp_path / name).write_text(body)
    told = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--disable-plugin-autoload",
            "--continue-on-collection-errors",
            ".",
        ],
        env={**os.environ, "PENSTOCK_REQUIRE_ALL": required, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert ending in told.stdout, told.stdout


def test_ci_runs_check_and_test_and_nothing_else() -> None:
    commands = [
        line
        for line in (ROOT / ".ci" / "run").read_text().splitlines()
        if line and not line.startswith(("#", "set ", "cd "))
    ]
    assert commands == ["PENSTOCK_REQUIRE_ALL=1 make check test"]
