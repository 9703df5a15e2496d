"""C3: from an issue to a task, where a result may be saved, who owns a claim, where the issues of a folder are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.config import Config, parse
from penstock.config.beads import Beads
from penstock.config.document import as_document, read_document
from penstock.errors import ConfigError, UsageError
from penstock.intake.beads.claims import Claims
from penstock.intake.beads.issues import Issue, read_issue
from penstock.intake.beads.mapping import kind_of, output_path, prompt, task_of
from penstock.intake.beads.outputs import BadOutput, IssueOutputs
from penstock.intake.beads.tracker import find_place, open_tracker

RULES = Beads(
    kind="general",
    labels={"docs": "summarize"},
    patterns=(("(?i)^translate", "translate"), ("x", "other")),
    types={"bug": "reasoning"},
    lane="issues",
)


# ---- tasks


@pytest.mark.parametrize(
    ("issue", "kind"),
    [
        ({}, "general"),
        ({"issue_type": "bug"}, "reasoning"),
        ({"issue_type": "bug", "title": "Translate it"}, "translate"),
        ({"issue_type": "bug", "title": "Translate it", "labels": ["docs"]}, "summarize"),
        ({"labels": ["docs", "kind:deep"]}, "deep"),
        ({"labels": ["kind:", "kind:no name", "docs"]}, "summarize"),
        ({"title": "not to translate"}, "general"),
    ],
)
def test_c3_the_kind_of_an_issue(issue: dict[str, Any], kind: str) -> None:
    """C3: labels before patterns, those before types, and a kind for the rest."""
    assert kind_of(read_issue({"id": "bd-1", **issue}), RULES) == kind


def test_c3_without_a_rule_there_is_no_kind() -> None:
    """C3."""
    assert kind_of(Issue("bd-1"), Beads()) is None


def test_c3_priority_due_date_and_text_are_kept() -> None:
    """C3: a due date fails nobody unless the config says so."""
    issue = read_issue(
        {
            "id": "bd-1",
            "title": "Write",
            "description": "All of it.\\n**Output path:** `a/b.md`\\nSoon.".replace("\\n", "\n"),
            "acceptance_criteria": "good",
            "priority": 0,
            "due_at": "2027-01-15T08:00:00Z",
            "labels": ["docs"],
            "dependencies": [{"depends_on_id": "bd-0", "type": "blocks"}],
        }
    )
    task = task_of(issue, "general", RULES, "key")
    assert (task.priority, task.lane, task.key, task.deadline) == (0, "issues", "key", None)
    assert task.payload["prompt"] == "Write\n\nAll of it.\n\nSoon.\n\nAcceptance criteria:\ngood"
    assert task.payload["issue"]["due_at"] == "2027-01-15T08:00:00.000000Z"
    assert task.payload["issue"]["dependencies"] == [{"on": "bd-0", "type": "blocks"}]
    assert task_of(issue, "general", Beads(due="deadline"), "key").deadline == 1_800_000_000.0
    assert set(task_of(issue, "general", RULES, "key", with_issue=False).payload) == {"prompt"}
    assert prompt(Issue("bd-1", title="only")) == "only"


def test_c3_metadata_may_bring_the_payload() -> None:
    """C3: for hosts that want something else than a prompt."""
    issue = read_issue({"id": "bd-1", "metadata": {"payload": {"query": "why"}}})
    assert task_of(issue, "deep", RULES, "key").payload == {"query": "why"}


@pytest.mark.parametrize(
    ("description", "path"),
    [
        ("Output path: a/b.md", "a/b.md"),
        ("x\noutput path:a.md  \ny", "a.md"),
        ("- **Output path:** `docs/my report.md`", "docs/my report.md"),
        ("Output path:", None),
        ("The output path: is elsewhere", None),
        ("", None),
    ],
)
def test_c3_an_output_path_in_a_description(description: str, path: str | None) -> None:
    """C3."""
    assert output_path(Issue("bd-1", description=description)) == path


# ---- outputs


@pytest.mark.parametrize(
    "path",
    ["../x", "a/../../x", "a/..", "/etc/passwd", "~/x", "a/", ".", "a\\b", "a\x00b", ".git/hooks/x",
     "sub/.git/config", "sub/.Git/config", ".beads/issues.jsonl", "a/.beads/issues.jsonl", "inbox/.penstock/lock",
     "x" * 2000],
)  # fmt: skip
def test_c3_paths_that_lead_out_are_refused(tmp_path: Path, path: str) -> None:
    """C3, promise 7: inside the allowed root only."""
    with pytest.raises(BadOutput):
        IssueOutputs(Config(), tmp_path).check(path)


def test_c3_a_result_is_saved_whole(tmp_path: Path) -> None:
    """C3: folders are made, an older result is replaced, nothing is left beside."""
    outputs = IssueOutputs(Config(), tmp_path)
    assert outputs.save("a/b/c.md", b"one") == "a/b/c.md"
    assert outputs.save(f"{tmp_path}/a/b/c.md", b"two") == "a/b/c.md"
    assert (tmp_path / "a/b/c.md").read_bytes() == b"two"
    assert os.listdir(tmp_path / "a/b") == ["c.md"]


def test_c3_links_that_lead_out_are_not_followed(tmp_path: Path) -> None:
    """C3: a folder that is a link is refused, a file that is one replaced."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "out").symlink_to(outside)
    (root / "file").symlink_to(outside / "x")
    (root / "plain").write_text("")
    (root / "folder").mkdir()
    for path, why in [
        ("out/x", "a link"),
        ("plain/x", "written"),
        ("folder", "a folder of that name"),
    ]:
        with pytest.raises(BadOutput, match=why):
            IssueOutputs(Config(), root).save(path, b"secret")
    assert IssueOutputs(Config(), root).save("file", b"secret") == "file"
    assert os.listdir(outside) == []
    with pytest.raises(BadOutput, match="No such file"):
        IssueOutputs(Config(), tmp_path / "gone").save("x", b"")


def test_c3_it_does_not_matter_by_which_name_the_folder_is_known(tmp_path: Path) -> None:
    """C3: the config and the store are where they are, whatever links lead there."""
    home, link = tmp_path / "home", tmp_path / "link"
    home.mkdir()
    link.symlink_to(home)
    config = Config(path=home / "penstock.toml", store=str(home / "penstock.db"))
    for root in (home, link):
        outputs = IssueOutputs(config, root)
        for name in ("penstock.toml", "penstock.db", "penstock.db-wal", "penstock.db.lock"):
            with pytest.raises(BadOutput, match="Penstock's own"):
                outputs.check(name)
            with pytest.raises(BadOutput, match="Penstock's own"):
                outputs.save(name, b"")
    assert os.listdir(home) == []


# ---- claims

KILLED = """
import sys
from pathlib import Path
from penstock.intake.beads.claims import Claims
claims = Claims(Path(sys.argv[1]), sys.argv[2])
claims.open()
with claims.exclusive():
    claims.add(["bd-1"], 1.0)
    claims.submitted({"bd-1": "t-1"})
print("claimed", flush=True)
sys.stdin.read()
"""


def owner(beads: Path, store: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(beads), store],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "claimed\n"
    return child


def test_c3_the_claims_of_the_dead_are_taken_over(tmp_path: Path) -> None:
    """C3: at once when the owner is gone, never before, and only for the same store."""
    child = owner(tmp_path, "a.db")
    mine = Claims(tmp_path, "a.db")
    mine.open()
    other = Claims(tmp_path, "b.db")
    other.open()
    with mine.exclusive():
        assert mine.taken() == {"bd-1"}
        assert mine.adopt() == []
    child.kill()
    child.communicate()
    with mine.exclusive():
        assert mine.taken() == set()
        assert other.adopt() == []
        (claim,) = mine.adopt()
        assert (claim.issue, claim.task) == ("bd-1", "t-1")
        assert mine.taken() == other.taken() == {"bd-1"}
        assert mine.adopt() == []
    mine.close()  # with a claim that is left: as if it had died
    again = Claims(tmp_path, "a.db")
    again.open()
    assert [one.key for one in again.adopt()] == [claim.key]
    again.drop(["bd-1"])
    again.close()
    other.close()
    assert sorted(os.listdir(tmp_path / "penstock")) == [".gitignore", "lock"]


def left_elsewhere(beads: Path, monkeypatch: pytest.MonkeyPatch, boot: str | None, store: str) -> Path:
    """What a loop of another hostname left; its lock file. With a boot of its own it had another kernel."""
    with monkeypatch.context() as patched:
        patched.setattr("penstock.intake.beads.claims.platform.node", lambda: "elsewhere")
        if boot is not None:
            patched.setattr("penstock.intake.beads.claims.boot_id", lambda: boot)
        there = Claims(beads, store)
        there.open()
        there.add(["bd-1"], 1.0)
        there.submitted({"bd-1": "t-1"})
        there.close()
    (lock,) = (beads / "penstock").glob("owner-*.lock")
    return lock


def test_c3_a_container_that_was_made_anew_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C3: it has another hostname, and sees the lock all the same."""
    left_elsewhere(tmp_path, monkeypatch, None, "a.db")
    here = Claims(tmp_path, "a.db")
    here.open()
    assert here.taken() == set()
    assert [claim.issue for claim in here.adopt()] == ["bd-1"]
    assert here.passed_over == []
    here.drop(["bd-1"])
    here.close()


def test_c3_claims_of_other_machines_are_taken_over_when_they_are_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C3: not before, only where the store has their tasks, and what is passed over is told."""
    lock = left_elsewhere(tmp_path, monkeypatch, "another", "a.db")
    here = Claims(tmp_path, "a.db")
    here.open()
    assert here.adopt(["t-1"]) == []
    assert here.taken() == {"bd-1"}
    assert here.tasks_elsewhere() == []
    assert "bd-1: claimed by a loop on elsewhere" in here.passed_over[0]
    long_ago = lock.stat().st_mtime - 100.0
    os.utime(lock, (long_ago, long_ago))
    assert here.tasks_elsewhere() == ["t-1"]
    assert here.adopt() == []
    assert "not this one" in here.passed_over[0]
    other = Claims(tmp_path, "b.db")
    other.open()
    assert other.adopt(["t-1"]) == []
    assert "for the store a.db" in other.passed_over[0]
    other.close()
    assert [claim.task for claim in here.adopt(["t-1"])] == ["t-1"]
    here.drop(["bd-1"])
    here.close()
    assert sorted(os.listdir(tmp_path / "penstock")) == [".gitignore", "lock"]


def test_c3_keys_are_new_for_every_claim(tmp_path: Path) -> None:
    """C3: an issue that was opened again is done again."""
    mine = Claims(tmp_path, "a.db")
    mine.open()
    (first,) = mine.add(["bd-1"], 1.0)
    mine.drop(["bd-1"])
    (second,) = mine.add(["bd-1"], 2.0)
    assert first.key != second.key
    mine.drop(["bd-1"])
    mine.close()


def test_c3_claims_that_cannot_be_kept_are_one_clear_error(tmp_path: Path) -> None:
    """C3, promise 7."""
    (tmp_path / "penstock").write_text("")
    with pytest.raises(UsageError, match="claims cannot be kept"):
        Claims(tmp_path, "a.db").open()


# ---- where the issues are


@pytest.mark.parametrize(
    ("files", "database"),
    [
        (["issues.jsonl"], None),
        (["issues.jsonl", "beads.db"], "beads.db"),
        (["issues.jsonl", "own.db"], "own.db"),
        (["issues.jsonl", "beads.backup.db"], None),
        (["dolt/x"], "dolt"),
        (["embeddeddolt/x"], "embeddeddolt"),
        (['metadata.json={"backend":"dolt"}', "issues.jsonl"], "dolt"),
        (['metadata.json={"database":"beads.db"}', "issues.jsonl"], None),
        (['metadata.json={"database":"mine.db"}', "mine.db"], "mine.db"),
        (["metadata.json=no JSON", "issues.jsonl"], None),
        (["config.yaml=no-db: true\n", "beads.db"], None),
        (["config.yaml=# no-db: true\n", "beads.db"], "beads.db"),
        ([], None),
    ],
)
def test_c3_which_way_leads_to_the_issues(tmp_path: Path, files: list[str], database: str | None) -> None:
    """C3: through the program where a database exists, else straight on the file."""
    (tmp_path / ".beads").mkdir()
    for file in files:
        name, _, text = file.partition("=")
        path = tmp_path / ".beads" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    found = find_place(tmp_path)
    assert (found.database, found.root) == (database, tmp_path)
    assert find_place(tmp_path / ".beads") == found
    assert found.jsonl.name == "issues.jsonl"


def test_c3_other_names_and_other_places(tmp_path: Path) -> None:
    """C3: an older name of the file, one that the metadata gives, a folder elsewhere."""
    beads = tmp_path / "one" / ".beads"
    beads.mkdir(parents=True)
    (beads / "beads.jsonl").write_text("")
    assert find_place(tmp_path / "one").jsonl.name == "beads.jsonl"
    (beads / "metadata.json").write_text('{"jsonl_export":"mine.jsonl"}')
    (beads / "mine.jsonl").write_text("")
    assert find_place(tmp_path / "one").jsonl.name == "mine.jsonl"
    tree = tmp_path / "two" / ".beads"
    tree.mkdir(parents=True)
    (tree / "redirect").write_text("../one/.beads\n")
    found = find_place(tmp_path / "two")
    assert (found.root, found.jsonl) == (tmp_path / "two", beads / "mine.jsonl")
    (tree / "redirect").write_text("../gone\n")
    with pytest.raises(UsageError, match="leads to"):
        find_place(tmp_path / "two")


def test_c3_what_is_missing_is_told_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C3, promise 7: no folder, no .beads, no program for a database."""
    with pytest.raises(UsageError, match="no such folder"):
        find_place(tmp_path / "gone")
    with pytest.raises(UsageError, match="run `bd init`"):
        find_place(tmp_path)
    (tmp_path / ".beads").mkdir()
    (tmp_path / ".beads" / "beads.db").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"only `bd` may write.*\[beads\] program"):
        open_tracker(find_place(tmp_path), Beads())
    with pytest.raises(UsageError, match=r"beads.program: 'nobody'"):
        open_tracker(find_place(tmp_path), Beads(program="nobody"))


# ---- config

TEXT = """
[hosts.h]
type = "simulated"
serves = ["general", "summarize"]

[lanes.issues]

[beads]
kind = "general"
labels = { docs = "summarize" }
patterns = [{ match = "(?i)^sum", kind = "summarize" }]
types = { bug = "general" }
lane = "issues"
actor = "robot"
root = "out"
program = "tools/bd"
due = "deadline"
max_claimed = 5
"""


def test_c3_beads_in_the_config(tmp_path: Path) -> None:
    """C3: read, written and read again."""
    config = parse(TEXT, tmp_path / "penstock.toml")
    beads = config.beads
    assert (beads.root, beads.program) == (str(tmp_path / "out"), str(tmp_path / "tools/bd"))
    assert beads.patterns == (("(?i)^sum", "summarize"),)
    assert read_document(as_document(config), config.path) == config
    assert config.with_settings({"beads.max_claimed": "7"}).beads.max_claimed == 7
    assert parse("", tmp_path / "penstock.toml").beads == Beads()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('lane = "issues"', 'lane = "isues"', "beads.lane: no such lane; did you mean 'issues'?"),
        ('kind = "general"\nlabels', 'kind = "genral"\nlabels', "beads.kind: no host serves this kind"),
        ('docs = "summarize"', 'docs = "x"', "beads.labels.docs: no host serves this kind"),
        ('"(?i)^sum"', '"("', "is not a regular expression"),
        ('match = "(?i)^sum", ', "", "has no match"),
        ("[{ match", "[5, { match", "must be a table like"),
        ('patterns = [{ match = "(?i)^sum", kind = "summarize" }]', "patterns = 5", "must be a list"),
        ('actor = "robot"', 'actor = "-x"', "must not begin with a dash"),
        ('due = "deadline"', 'due = "never"', 'must be "order" or "deadline"'),
        ("max_claimed = 5", "max_claimed = 0", "must be a whole number"),
        ("max_claimed", "max_claims", "beads.max_claims: unknown key"),
        ('kind = "general"\nlabels', 'kind = "a b"\nlabels', "must be a name"),
    ],
)
def test_c3_every_mistake_in_beads_is_told(tmp_path: Path, old: str, new: str, problem: str) -> None:
    """C3, promise 7: each with its place."""
    assert old in TEXT
    with pytest.raises(ConfigError) as caught:
        parse(TEXT.replace(old, new, 1), tmp_path / "penstock.toml")
    assert problem in str(caught.value)
    assert len(caught.value.problems) == 1
