"""The researcher adapter (A9): what a payload asks for, what a run is given, what its end means."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.config import parse
from penstock.config.own_files import work_dir
from penstock.errors import ConfigError, PermanentError, TemporaryError
from penstock.hosts.base import Job, Program
from penstock.hosts.own_door import Guest, OwnDoor
from penstock.hosts.researcher import ResearcherAdapter
from penstock.hosts.researcher_failures import Failure, judged
from penstock.hosts.researcher_options import read_options, read_wish
from penstock.model import Host, Outcome, Price, Verdict
from penstock.wiring import make_adapters

URL = "http://model.test/v1"


def host(model: str | None = "m", prices: dict[str, Price] | None = None, **options: Any) -> Host:
    given = {"url": URL, "work_dir": "/w", **options}
    options = {name: value for name, value in given.items() if value is not None}
    return Host("reports", "researcher", model=model, prices=prices or {}, options=options)


def job(payload: Any = "Why?", kind: str = "gptr", **fields: Any) -> Job:
    return Job("1m7f", 2, kind, payload, "reports", "default", **fields)


def work(payload: Any = "Why?", kind: str = "gptr", **options: Any) -> Program:
    return ResearcherAdapter(host(**options)).work(job(payload, kind))


# ---- options


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"url": "model.test"}, r"hosts.reports.url: must begin with http:// or https://"),
        ({"model": None}, "hosts.reports.model: is missing; say which model of that server writes"),
        ({"url": None, "key_env": "K"}, "hosts.reports.key_env: is for a server of your own"),
        ({"report_source": "local"}, "hosts.reports.documents: is missing"),
        ({"report_source": "moon"}, 'hosts.reports.report_source: must be "web" or "local" or "hybrid"'),
        (
            {"report_types": {"x": "novel"}},
            "hosts.reports.report_types.x: no such report; one of research_report",
        ),
        ({"retriever": "custom"}, "hosts.reports.retriever_url: is missing"),
        ({"retriever": "tavily", "retriever_url": "http://x"}, 'belongs to retriever = "custom"'),
        ({"keep": "some"}, "hosts.reports.keep: must be"),
        ({"pass_env": "KEY"}, "hosts.reports.pass_env: must be a list of texts"),
    ],
)
def test_wrong_options_are_told_with_their_place(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ResearcherAdapter(host(**options))
    assert any(problem in told for told in caught.value.problems)


def test_a_config_has_researchers(tmp_path: Path) -> None:
    text = """
        store = "queue.db"
        [hosts.reports]
        type = "researcher"
        python = ".venv-r/bin/python"
        model = "m"
        url = "http://model.test/v1"
        report_source = "local"
        documents = "library"
        [prices.m]
        input = 1.0
        output = 2.0
    """
    config = parse(text, tmp_path / "penstock.toml")
    [one] = config.plant.hosts
    assert one.prices["m"].output == 2.0
    assert one.options["documents"] == str(tmp_path / "library")
    assert work_dir(config, one).endswith("queue.db.work")
    adapter = make_adapters(config, ManualClock())["reports"]
    assert isinstance(adapter, ResearcherAdapter)
    assert adapter.work(job()).argv[0] == str(tmp_path / ".venv-r/bin/python")
    apart = parse(text.replace("documents =", 'work_dir = "runs"\ndocuments ='), tmp_path / "penstock.toml")
    assert Path(work_dir(apart, apart.plant.hosts[0])).parent == tmp_path / "runs"


# ---- payloads


@pytest.mark.parametrize(
    ("kind", "payload", "expected"),
    [
        ("gptr", "Why?", "research_report"),
        ("dr", "Why?", "deep"),
        ("deep", "Why?", "deep"),
        ("ma", "Why?", "multi_agent"),
        ("multi_agent", "Why?", "multi_agent"),
        ("outline_report", "Why?", "outline_report"),
        ("brief", "Why?", "outline_report"),
        ("anything", "Why?", "resource_report"),
        ("ma", {"query": "Why?", "report_type": "detailed_report"}, "detailed_report"),
    ],
)
def test_the_kind_says_which_report(kind: str, payload: Any, expected: str) -> None:
    options = read_options(host(report_type="resource_report", report_types={"brief": "outline_report"}))
    assert read_wish(kind, payload, options).report_type == expected


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (None, "is a text or .*, not nothing"),
        (["Why?"], "not list"),
        ({}, "has no `query`"),
        ({"query": " "}, "has no `query`"),
        ({"query": 1}, "'query' must be a text"),
        ({"query": "a\0b"}, "contains a NUL character"),
        ({"query": "Why?", "type": "deep"}, "'type' is unknown; it may have query, report_type"),
        ({"query": "Why?", "include_human_feedback": True}, "is unknown"),
        ({"query": "Why?", "report_type": "novel"}, "must be one of research_report"),
        ({"query": "Why?", "report_source": "local"}, "needs `documents` of the host"),
        ({"query": "Why?", "documents": "x"}, "it has none"),
        ({"query": "Why?", "max_sections": 0}, "from 1 to 100"),
        ({"query": "Why?", "max_sections": True}, "from 1 to 100"),
        ({"query": "Why?", "guidelines": "short"}, "a list of texts"),
        ({"query": "Why?", "follow_guidelines": 1}, "true or false"),
        (
            {"query": "Why?", "report_type": "multi_agent", "source_urls": ["http://x.org"]},
            "searches by itself",
        ),
    ],
)
def test_a_payload_that_cannot_be_used_fails_for_good(payload: Any, problem: str) -> None:
    with pytest.raises(PermanentError, match=problem):
        work(payload)


@pytest.mark.parametrize("name", ["source_urls", "document_urls"])
@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("/srv/secret.pdf", "no address of the web"),
        ("secret.pdf", "no address of the web"),
        ("file:///srv/secret.pdf", "no address of the web"),
        ("ftp://example.org/a.pdf", "no address of the web"),
        (" http://example.org/a.pdf", "no address of the web"),
        ("http://example.org\\@127.0.0.1/", "no address of the web"),
        ("http://[::1", "no address of the web"),
        ("http:///a.pdf", "names no host"),
        ("http://127.0.0.1:8787/metrics", "inside your own network"),
        ("http://127.1/", "inside your own network"),
        ("http://me:pw@localhost./", "inside your own network"),
        ("http://[::ffff:10.0.0.1]/", "inside your own network"),
        ("http://169.254.169.254/latest/meta-data", "inside your own network"),
        ("http://192.168.1.1/", "inside your own network"),
        ("http://0.0.0.0/", "inside your own network"),
        ("https://surtr/", "inside your own network"),
        ("https://metadata.google.internal/", "inside your own network"),
    ],
)
def test_nothing_but_the_public_web_is_fetched_for_a_payload(name: str, url: str, wrong: str) -> None:
    """Promise 8: the package opens what is no address as a file, and fetches whatever answers here."""
    payload = {"query": "Why?", name: ["https://example.org/a.pdf", url]}
    with pytest.raises(PermanentError, match=f"{name}: .*{wrong}"):
        work(payload)
    if wrong.startswith("inside"):
        order = json.loads(work(payload, private_urls=True).stdin)
        assert order["arguments"] == {name: payload[name]}
    else:
        with pytest.raises(PermanentError, match=wrong):
            work(payload, private_urls=True)


@pytest.mark.parametrize("asked", ["../secret", "/etc", "a/../../secret", "out"])
def test_documents_never_lead_out_of_the_hosts_folder(tmp_path: Path, asked: str) -> None:
    library = tmp_path / "library"
    (library / "a").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (library / "out").symlink_to(tmp_path / "secret")
    with pytest.raises(PermanentError, match="leads out of the host's own folder"):
        work({"query": "Why?", "documents": asked}, documents=str(library))
    inside = work({"query": "Why?", "documents": "a"}, documents=str(library))
    assert inside.env["DOC_PATH"] == str(library / "a")


def test_what_the_multi_agent_team_is_told() -> None:
    payload = {"query": "Why?", "guidelines": ["be short"], "max_sections": 2}
    order = json.loads(work(payload, "ma").stdin)
    assert order["team"] == {"max_sections": 2, "guidelines": ["be short"], "follow_guidelines": True}
    assert order["parent"] == os.getpid()


# ---- what a run is given


def test_a_run_has_an_environment_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 8: what it gets is named; nothing else of the dispatcher's environment reaches it."""
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setenv("A_SECRET", "x")
    monkeypatch.setenv("TAVILY_API_KEY", "tvly-1234")
    monkeypatch.setenv("MODEL_KEY", "sk-1234")
    program = work(
        key_env="MODEL_KEY", pass_env=["TAVILY_API_KEY"], env={"TOTAL_WORDS": "500"}, embedding_model="e"
    )
    assert not program.inherits
    assert "A_SECRET" not in program.env
    assert "MODEL_KEY" not in program.env
    expected = {
        "PATH": "/bin",
        "TAVILY_API_KEY": "tvly-1234",
        "OPENAI_BASE_URL": URL,
        "OPENAI_API_KEY": "sk-1234",
        "SMART_LLM": "openai:m",
        "EMBEDDING": "custom:e",
        "TOTAL_WORDS": "500",
        "HOME": "/w/reports/1m7f.2",
    }
    assert {name: program.env[name] for name in expected} == expected
    assert program.cwd == "/w/reports/1m7f.2"
    assert "sk-1234" not in repr(program.argv) + program.stdin.decode()


def test_models_may_differ_by_their_use_and_a_payload_names_one_for_all() -> None:
    names = ("FAST_LLM", "SMART_LLM", "STRATEGIC_LLM")
    own = work(fast_model="f", smart_model="s", strategic_model="t")
    assert [own.env[name] for name in names] == ["openai:f", "openai:s", "openai:t"]
    asked = work({"query": "Why?", "model": "x"}, fast_model="f")
    assert [asked.env[name] for name in names] == ["openai:x"] * 3
    assert asked.env["EMBEDDING"] == "custom:m"
    task = job({"query": "Why?", "model": "x"}, model="y")
    told = ResearcherAdapter(host(fast_model="f")).work(task)
    assert [told.env[name] for name in names] == ["openai:y"] * 3, (
        "A8: a matrix over models says it of the task"
    )


def test_a_run_without_the_web() -> None:
    program = work(report_source="local", documents="/library", retriever_url="http://127.0.0.1:1/")
    wanted = {"DOC_PATH": "/library", "RETRIEVER": "custom", "RETRIEVER_ENDPOINT": "http://127.0.0.1:1/"}
    assert {name: program.env[name] for name in wanted} == wanted


class _Entrance:
    url = "http://127.0.0.1:7/v1"
    node_urls = (url, None)

    def __init__(self) -> None:
        self.guests: list[Guest] = []

    def let_in(self, guest: Guest, root: bytes | None = None) -> str:
        self.guests.append(guest)
        return "psk-key"

    def shut_out(self, key: str) -> None: ...


async def test_by_default_calls_come_back_to_us() -> None:
    door, entrance = OwnDoor(), _Entrance()
    adapter = ResearcherAdapter(host(url=None, door=door, calls_lane="writing"))
    with pytest.raises(TemporaryError, match="door is not open"):
        adapter.work(job())
    door.open(entrance)
    program = adapter.work(job())
    assert (program.env["OPENAI_BASE_URL"], program.env["OPENAI_API_KEY"]) == (entrance.url, "psk-key")
    assert entrance.guests[0].lane == "writing"
    # A call that waits in our queue is not given up and made again.
    assert json.loads(program.env["LLM_KWARGS"])["request_timeout"] == 86_400
    assert program.env["LANGCHAIN_OPENAI_STREAM_CHUNK_TIMEOUT_S"] == "0"
    assert "LANGCHAIN_OPENAI_STREAM_CHUNK_TIMEOUT_S" not in work().env
    with pytest.raises(PermanentError, match="cannot be in lane 'writing'"):
        adapter.work(Job("t", 1, "gptr", "Why?", "reports", "writing"))


def test_the_trace_goes_on() -> None:
    trace = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    program = ResearcherAdapter(host()).work(job(trace=trace))
    assert program.env["TRACEPARENT"] == trace


# ---- what became of it


def told(**answer: Any) -> bytes:
    return json.dumps(answer).encode()


RESULT = {
    "text": "# Report",
    "sources": ["http://x"],
    "costs": 0.25,
    "usage": {"m": {"input": 1000, "output": 500}},
}


def test_a_report_is_the_value() -> None:
    done = work().outcome(0, told(result=RESULT), b"\x1b[32mdone\x1b[0m\n")
    assert done.verdict is Verdict.DONE
    assert done.value == {
        "query": "Why?",
        "report_source": "web",
        "tokens": 1500,
        "text": "# Report",
        "sources": ["http://x"],
        "costs": 0.25,
    }
    assert done.logs == "done\n"
    assert (done.tokens, done.cost_usd) == (1500, None)


def test_a_server_of_its_own_costs_what_its_prices_say() -> None:
    prices = {"m": Price(input=1.0, output=2.0)}
    done = work(prices=prices).outcome(0, told(result=RESULT), b"")
    assert done.cost_usd == pytest.approx(0.002)


async def test_calls_that_came_back_to_us_are_not_counted_twice() -> None:
    door = OwnDoor()
    door.open(_Entrance())
    done = ResearcherAdapter(host(url=None, door=door)).work(job()).outcome(0, told(result=RESULT), b"")
    assert (done.tokens, done.cost_usd) == (None, None)
    assert done.value["tokens"] == 1500


@pytest.mark.parametrize(
    ("status", "stdout", "error"),
    [
        (-9, b"", "GPT-Researcher ended without a result, killed by SIGKILL: last words"),
        (-9, b'{"result": {"te', "killed by SIGKILL"),
        (-9, told(result=RESULT), "killed by SIGKILL"),
        (3, b"", "GPT-Researcher ended without a result, exit status 3: last words"),
        (0, b"", "exit status 0"),
        (0, b'{"result": 1}', "exit status 0"),
    ],
)
def test_an_end_without_a_result_may_be_tried_again(status: int, stdout: bytes, error: str) -> None:
    ended = work().outcome(status, stdout, b"first\nlast words\n\n")
    assert ended.verdict is Verdict.TEMPORARY
    assert error in (ended.error or "")
    assert ended.value is None


def test_secrets_are_in_no_log_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 8."""
    monkeypatch.setenv("MODEL_KEY", "sk-1234")
    ended = work(key_env="MODEL_KEY").outcome(1, b"", b"refused sk-1234\n")
    assert "sk-1234" not in f"{ended.error}{ended.logs}"
    assert "refused [key]" in (ended.error or "")
    answer = told(
        failure={"types": ["openai.AuthenticationError"], "texts": ["wrong: sk-1234"], "status": 401}
    )
    ended = work(key_env="MODEL_KEY").outcome(1, answer, b"")
    assert (ended.error or "").startswith("AuthenticationError: wrong: [key]; the model server refuses it")


def test_what_hides_secrets_leaves_the_report_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable's value may be a word, and even the name of a field."""
    monkeypatch.setenv("MODE", "text")
    answer = told(result={"text": "a text about text", "sources": []})
    ended = work(pass_env=["MODE"]).outcome(0, answer, b"")
    assert ended.verdict is Verdict.DONE
    assert ended.value["text"] == "a text about text"


def test_settings_that_are_named_like_secrets_are_hidden_too() -> None:
    env = {"TAVILY_API_KEY": "tvly-12", "MY_PASSWORD": "tvly-12345", "TOTAL_WORDS": "1800"}
    ended = work(env=env).outcome(1, b"", b"asked tvly-12345 and tvly-12 for 1800 words\n")
    assert "asked [key] and [key] for 1800 words" in (ended.error or "")
    assert "tvly" not in (ended.logs or "")
    answer = told(failure={"types": ["builtins.ValueError"], "texts": ["x" * 1895 + "tvly-12345"]})
    assert "tvly" not in (work(env=env).outcome(1, answer, b"").error or "tvly")


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, "127.0.0.1"), ("example.org", "example.org,127.0.0.1"), ("*", "*")],
)
async def test_our_own_door_is_not_looked_for_behind_a_proxy(
    given: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.test:3128")
    door = OwnDoor()
    door.open(_Entrance())
    env = {} if given is None else {"NO_PROXY": given}
    told = ResearcherAdapter(host(url=None, door=door, env=env)).work(job()).env
    assert (told["NO_PROXY"], told["no_proxy"]) == (expected, expected)
    assert "no_proxy" not in work().env


MISSING = "install it there with `pip install 'gpt-researcher>=0.15,<0.16'`"


@pytest.mark.parametrize(
    ("failure", "verdict", "words"),
    [
        (Failure(["builtins.ModuleNotFoundError"], ["no"], missing="gpt_researcher"), Verdict.HOST, MISSING),
        (Failure(["builtins.ModuleNotFoundError"], ["no"], missing="md2pdf"), Verdict.HOST, "has no md2pdf"),
        (
            Failure(["builtins.AttributeError"], ["'str' object has no attribute 'append'"]),
            Verdict.TEMPORARY,
            "had not the form it needs",
        ),
        (
            Failure(["builtins.RuntimeError", "openai.NotFoundError"], ["Failed", "no model x"], status=404),
            Verdict.PERMANENT,
            "RuntimeError: Failed, because of NotFoundError: no model x; the model server refuses it",
        ),
        (
            Failure(["builtins.RuntimeError", "openai.InternalServerError"], ["Failed", "oh"], status=500),
            Verdict.TEMPORARY,
            "because of InternalServerError: oh",
        ),
        (
            Failure(["builtins.AttributeError"], ["None"], status=404, notes=["LLM request failed: 404"]),
            Verdict.PERMANENT,
            "after it said: LLM request failed: 404",
        ),
        (
            Failure(["builtins.RuntimeError", "openai.APIConnectionError"], ["Failed", "refused"]),
            Verdict.HOST,
            f"the model server {URL} was not reached",
        ),
        (
            Failure(["builtins.ValueError"], ["🤷 Failed to load any documents!"]),
            Verdict.PERMANENT,
            "put .txt or .pdf files",
        ),
        (Failure(["builtins.ValueError"], ["tone: there is no 'x'"]), Verdict.PERMANENT, "tone"),
        (Failure(["__main__.NoContext"], ["nothing was found"]), Verdict.TEMPORARY, "nothing was found"),
        (Failure(["builtins.OSError"], ["disk"]), Verdict.TEMPORARY, "disk"),
    ],
)
def test_a_failure_is_judged_by_its_cause(failure: Failure, verdict: Verdict, words: str) -> None:
    found, error = judged(failure, "reports", "python", URL)
    assert found is verdict
    assert words in error
    assert "\n" not in error


def test_our_own_door_out_of_reach_is_no_hosts_fault() -> None:
    failure = Failure(["openai.APIConnectionError"], ["refused"])
    assert judged(failure, "reports", "python", None)[0] is Verdict.TEMPORARY


def test_a_failure_is_told_by_the_run_itself() -> None:
    answer = told(failure={"types": ["builtins.KeyError"], "texts": ["'title'"], "notes": ["no JSON"]})
    ended: Outcome = work().outcome(1, answer, b"Traceback\n")
    assert ended.verdict is Verdict.TEMPORARY
    assert (ended.error or "").startswith("KeyError: 'title', after it said: no JSON; a model's answer")


# ---- whether it could


async def test_a_missing_package_is_one_line_with_its_remedy(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    health = await ResearcherAdapter(host(python=str(bare))).check()
    assert not health.up
    assert health.detail.startswith(f"{bare} has no gpt-researcher; install it there with")
    assert "\n" not in health.detail


async def test_a_check_looks_at_all_that_a_run_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = await ResearcherAdapter(host(python="/no/such/python")).check()
    assert "hosts.reports.python: /no/such/python cannot be run" in gone.detail
    folder = await ResearcherAdapter(host(documents="/no/such/folder")).check()
    assert "hosts.reports.documents: no folder '/no/such/folder'" in folder.detail
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    key = await ResearcherAdapter(host(key_env="NO_SUCH_KEY")).check()
    assert "NO_SUCH_KEY" in key.detail
    passed = await ResearcherAdapter(host(pass_env=["NO_SUCH_KEY"])).check()
    assert "hosts.reports.pass_env: there is no variable NO_SUCH_KEY" in passed.detail


@pytest.mark.parametrize(
    ("said", "up", "amiss", "detail"),
    [
        ("0.15.1 True", True, False, "gpt-researcher 0.15.1"),
        ("0.15.1 False", True, True, "gpt-researcher 0.15.1, without multi_agent"),
        ("0.16.0 True", True, True, "gpt-researcher 0.16.0: made for 0.15, others may differ"),
    ],
)
async def test_a_check_names_the_version(
    tmp_path: Path, said: str, up: bool, amiss: bool, detail: str
) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text(f"#!/bin/sh\necho {said}\n")
    stand_in.chmod(0o755)
    health = await ResearcherAdapter(host(python=str(stand_in))).check()
    assert (health.up, health.amiss, health.detail) == (up, amiss, detail)
