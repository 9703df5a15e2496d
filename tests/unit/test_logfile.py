"""E2: start/end logs of any system are read whole, or refused with file, line, column and remedy."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.errors import UsageError
from penstock.intake.logs import rows as logrows
from penstock.intake.logs.file import LogFile, read_log
from penstock.model import Host, Lane, Plant, State, Verdict

Spans = list[tuple[str, float | None, float | None]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def log(folder: Path, text: str | bytes, name: str = "log.csv", *maps: str) -> LogFile:
    data = text.encode() if isinstance(text, str) else text
    (folder / name).write_bytes(data)
    return read_log(Path(name), maps=maps)


def spans(read: LogFile) -> Spans:
    begin = read.recording.begin
    return [
        (a.task, a.started_at - begin, None if a.ended_at is None else a.ended_at - begin)
        for a in read.recording.attempts
    ]


def near(found: Spans, wanted: Spans) -> bool:
    """The same to the millisecond: an epoch as a float is no finer than a quarter of a microsecond."""
    return [(t, round(a or 0.0, 3), round(b or 0.0, 3)) for t, a, b in found] == wanted


def refused(folder: Path, text: str | bytes, name: str = "log.csv", *maps: str) -> str:
    with pytest.raises(UsageError) as told:
        log(folder, text, name, *maps)
    assert "\n" not in str(told.value)
    return str(told.value)


# ---- forms


TWO: Spans = [("a", 0.0, 10.0), ("b", 10.0, 25.0)]


@pytest.mark.parametrize(
    "text",
    [
        "task,started,ended\na,0,10\nb,10,25\n",
        "task;started;ended\na;0;10\nb;10;25\n",
        "task\tstarted\tended\na\t0\t10\nb\t10\t25\n",
        "task|started|ended\na|0|10\nb|10|25\n",
        '\ufefftask,started,ended\r\n\r\n"a",0,10\r\n\r\n"b",10,25\r\n',
        "# task, started, ended\na, 0, 10\nb, 10, 25",
        'note,task,started,ended\n"x, y\nz",a,0,10\n,b,10,25\n',
        "a,0,10\nb,10,25\n",
        "Job ID,Start Time (ms),elapsed_ms\na,0,10000\nb,10000,15000\n",
        "id,completed,took\na,10,10s\nb,25,00:15\n",
        "task,startedAt,finishedAt\na,2026-03-01T10:00:00Z,2026-03-01T10:00:10Z\n"
        "b,2026-03-01T12:00:10+02:00,2026-03-01 10:00:25 UTC\n",
        "task,start,end\na,2026-03-01 10:00:00,2026/03/01 10:00:10\n"
        "b,2026-03-01 10:00:10.000,2026-03-01T10:00:25\n",
        "task,start,end\na,1772359200,1772359210\nb,1772359210,1772359225\n",
        "task,start,end\na,1772359200000,1772359210000\nb,1772359210000,1772359225000\n",
        "task,start,end\na,1772359200000000,1772359210000000\nb,1772359210000000,1772359225000000\n",
        "task,start,end\na,1772359200000000000,1772359210000000000\nb,1772359210000000000,1772359225000000000\n",
        "task,start,end\na,10:00:00,10:00:10.000\nb,10:00:10,10:00:25\n",
        "task,start,end\na,26:30,26:40\nb,26:40,26:55\n",
        "task,start,end\na,26m30s,26m40s\nb,26m40s,26m55s\n",
        "task,start,end\na,23:59:55,00:00:05\nb,00:00:05,00:00:20\n",
        "ts,event,task\n0,start,a\n10,end,a\n10,task_started,b\n25,TaskFinished,b\n",
        "ts;status;task\n0;running;a\n10;done;a\n10;running;b\n25;success;b\n",
    ],
)
def test_csv_in_its_forms(folder: Path, text: str) -> None:
    read = log(folder, text)
    assert near(spans(read), TWO)
    assert {"started", "ended"} <= read.recording.told
    assert all(record.state is State.DONE for record in read.recording.tasks)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.jsonl", '{"id": "a", "start": 0, "end": 10}\n\n{"id": "b", "start": 10, "end": 25.0}'),
        (
            "log.json",
            '[{"id": "a", "start": "0", "end": 10},\n {"id": "b", "start": 10, "duration": 15, "end": null}]',
        ),
        (
            "log",
            '{"id": "a", "t": {"startTime": 0, "endTime": 10}}\n{"id": "b", "t": {"startTime": 10, "endTime": 25}}',
        ),
        (
            "log.ndjson",
            "\n".join(
                json.dumps({"task": t, "event": e, "time": at})
                for t, e, at in [("b", "end", 25), ("a", "start", 0), ("b", "start", 10), ("a", "end", 10)]
            ),
        ),
    ],
)
def test_json_in_its_forms(folder: Path, name: str, text: str) -> None:
    assert near(spans(log(folder, text, name)), TWO)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    data = io.BytesIO(b"task,started,ended\na,0,10\nb,10,25\n")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=data))
    read = read_log("-")
    assert spans(read) == TWO
    assert read.recording.name == "stdin"


def test_all_that_a_log_tells(folder: Path) -> None:
    text = (
        "id,type,lane,worker,model,prio,submitted,start,end,status,try,error,cost,depends_on,colour\n"
        "a,ocr,slow,gpu1,m,high,0,1,3,failed,0,boom,$0.5,,red\n"
        "a,ocr,slow,gpu2,m,high,0,4,6,success,1,,0.25,,red\n"
        "b,asr,fast,gpu1,n,P0,2,7,9,ok,0,,,a;zz,blue\n"
    )
    read = log(folder, text)
    a, b = read.recording.tasks
    assert (a.task.kind, a.task.lane, a.task.model, a.task.priority) == ("ocr", "slow", "m", 1)
    assert (a.task.queued_at, a.attempts, a.host, a.state) == (0.0, 2, "gpu2", State.DONE)
    assert (b.task.after, b.task.priority) == (("a",), 0)
    first, second, third = read.recording.attempts
    assert (first.number, first.host, first.verdict, first.error) == (1, "gpu1", Verdict.TEMPORARY, "boom")
    assert (second.number, second.host, second.verdict) == (2, "gpu2", Verdict.DONE)
    assert third.task == "b"
    assert read.recording.costs == {("a", 1): 0.5, ("a", 2): 0.25}
    assert read.notes == ("columns left aside: colour",)
    assert read.columns["queued"] == "submitted"
    assert (read.recording.begin, read.recording.end) == (0.0, 9.0)


def test_what_is_not_told_is_left_at_its_default(folder: Path) -> None:
    read = log(folder, "start,end\n5,10\n7,12\n")
    assert [r.task.id for r in read.recording.tasks] == ["line-2", "line-3"]
    assert [r.task.queued_at for r in read.recording.tasks] == [5.0, 7.0]
    assert {a.host for a in read.recording.attempts} == {""}
    assert read.recording.told == {"started", "ended"}
    assert (read.recording.plant, read.recording.is_ours) == (None, False)


# ---- which rows belong together


def test_a_name_that_comes_again_is_another_task(folder: Path) -> None:
    read = log(folder, "name,start,end\nfetch,0,1\nfetch,2,3\nfetch,2,4\n")
    assert [r.task.id for r in read.recording.tasks] == ["fetch", "fetch#2", "fetch#3"]


def test_a_task_that_failed_and_comes_again_is_tried_again(folder: Path) -> None:
    read = log(folder, "id,start,end,ok\nx,0,1,false\nx,2,3,false\nx,5,6,true\nx,7,8,true\ny,0,1,false\n")
    assert [(r.task.id, r.attempts, r.state) for r in read.recording.tasks] == [
        ("x", 3, State.DONE),
        ("y", 1, State.FAILED),
        ("x#2", 1, State.DONE),
    ]
    assert [a.verdict for a in read.recording.attempts if a.task == "y"] == [Verdict.PERMANENT]


def test_tasks_that_run_or_wait_still(folder: Path) -> None:
    read = log(folder, "id,queued,start,end\na,0,1,5\nb,0,2,\nc,3,,\n")
    assert [(r.state, r.ended_at) for r in read.recording.tasks] == [
        (State.DONE, 5.0),
        (State.RUNNING, None),
        (State.QUEUED, None),
    ]
    assert read.recording.end == 5.0
    events = "time,event,task\n0,queued,a\n0,queued,b\n1,start,a\n2,checkpoint,a\n"
    read = log(folder, events)
    assert [(r.task.id, r.state) for r in read.recording.tasks] == [("a", State.RUNNING), ("b", State.QUEUED)]
    assert read.notes == ("events left aside: 'checkpoint' (1)",)
    assert read.recording.end == 2.0


def test_events_tell_attempts(folder: Path) -> None:
    text = (
        "time,event,id,host,queue\n"
        "10:00:00,queued,a,,ocr\n10:00:01,started,a,x,\n10:00:02,failed,a,x,\n10:00:04,started,a,y,\n10:00:05,completed,a,y,\n"
    )
    read = log(folder, text)
    (a,) = read.recording.tasks
    assert (a.task.kind, a.attempts, a.state, a.task.queued_at) == ("ocr", 2, State.DONE, 36000.0)
    assert [(t.number, t.host, t.verdict) for t in read.recording.attempts] == [
        (1, "x", Verdict.TEMPORARY),
        (2, "y", Verdict.DONE),
    ]


def test_clocks_pass_midnight_also_out_of_order(folder: Path) -> None:
    text = (
        "id,queued,start,end\n"
        "a,23:50:00,23:55:00,00:10:00\n"
        "c,23:50:00,00:05:00,00:06:00\n"
        "b,23:50:00,23:58:00,00:20:00\n"
        "d,23:50:00,00:30:00,01:00:00\n"
        "e,10:00:00,11:00:00,23:30:00\n"
        "f,12:00:00,20:00:00,21:00:00\n"
        "g,23:00:00,00:00:01,00:00:02\n"
    )
    started = {r.task.id: r.started_at for r in log(folder, text).recording.tasks}
    day = 86_400
    assert started == {
        "a": 86_100.0,
        "b": 86_280.0,
        "c": day + 300.0,
        "d": day + 1800.0,
        "e": day + 39_600.0,
        "f": day + 72_000.0,
        "g": 2 * day + 1.0,
    }


def test_a_clock_over_a_day_counts_from_the_beginning(folder: Path) -> None:
    read = log(folder, "id,start,end\na,23:00:00,25:00:00\nb,01:00:00,02:00:00\n")
    assert {a.task: a.started_at for a in read.recording.attempts} == {"a": 82_800.0, "b": 3_600.0}


def test_a_length_may_carry_a_clock_past_midnight(folder: Path) -> None:
    read = log(folder, "id,start,duration\na,23:59:50,20\nb,00:00:10,5\n")
    assert spans(read) == [("a", 0.0, 20.0), ("b", 20.0, 25.0)]


def test_times_that_were_rounded_differently_are_set_right(folder: Path) -> None:
    read = log(folder, "id,queued,start,end\na,0.7,0,2\nb,3,3.6,3\n")
    assert [(r.task.queued_at, r.started_at, r.ended_at) for r in read.recording.tasks] == [
        (0.0, 0.0, 2.0),
        (3.0, 3.6, 3.6),
    ]


@pytest.mark.parametrize(
    ("column", "value", "state", "verdict"),
    [
        ("status", "200", State.DONE, Verdict.DONE),
        ("status", "429", State.FAILED, Verdict.THROTTLED),
        ("status", "503", State.FAILED, Verdict.HOST),
        ("status", "404", State.FAILED, Verdict.PERMANENT),
        ("exit_code", "0", State.DONE, Verdict.DONE),
        ("exit_code", "137", State.FAILED, Verdict.PERMANENT),
        ("success", "1", State.DONE, Verdict.DONE),
        ("success", "False", State.FAILED, Verdict.PERMANENT),
        ("state", "TaskState.TIMED_OUT", State.FAILED, Verdict.TEMPORARY),
        ("state", "REVOKED", State.CANCELLED, Verdict.CANCELLED),
        ("state", "blocked", State.BLOCKED, Verdict.PERMANENT),
    ],
)
def test_states_in_many_words(folder: Path, column: str, value: str, state: State, verdict: Verdict) -> None:
    read = log(folder, f"id,start,end,{column}\na,0,1,{value}\n")
    assert read.recording.tasks[0].state is state
    assert read.recording.attempts[0].verdict is verdict


# ---- maps


def test_a_map_wins_over_names(folder: Path) -> None:
    text = "id,start,end,launch_ts,who\nx,0,50,20,h1\n"
    read = log(folder, text, "log.csv", "started=launch_ts", "host=who", "task=")
    (attempt,) = read.recording.attempts
    assert (attempt.started_at, attempt.ended_at, attempt.host, attempt.task) == (20.0, 50.0, "h1", "line-2")
    assert read.notes == ("columns left aside: id, start",)


def test_columns_without_a_header_are_numbered(folder: Path) -> None:
    read = log(folder, "1,x,0,0,10,ok\n2,y,0,10,25,failed\n")
    assert [(r.task.id, r.task.queued_at, r.state) for r in read.recording.tasks] == [
        ("1", 0.0, State.DONE),
        ("2", 0.0, State.FAILED),
    ]
    read = log(folder, "7,9,1,5\n8,9,2,6\n", "log.csv", "started=3", "ended=4", "task=1", "host=2")
    assert [(a.task, a.host, a.started_at) for a in read.recording.attempts] == [
        ("7", "9", 1.0),
        ("8", "9", 2.0),
    ]


@pytest.mark.parametrize(
    ("maps", "told"),
    [
        (["begin"], "--map: 'begin' must be FIELD=COLUMN, such as --map started=launch_ts"),
        (["strated=a"], "--map: there is no field 'strated'; did you mean 'started'?"),
        (
            ["zzz=a"],
            "--map: there is no field 'zzz'; fields: after, attempt, cost, duration, ended, error, event, "
            "host, kind, lane, model, priority, … (17)",
        ),
        (["task=qqq"], "--map task: log.csv has no column 'qqq'; columns: ended, id, started"),
        (["task=id", "task=id"], "--map: task is mapped twice; keep one"),
    ],
)
def test_wrong_maps_are_told(folder: Path, maps: list[str], told: str) -> None:
    assert refused(folder, "id,started,ended\na,0,1\n", "log.csv", *maps) == told


# ---- hosts


def test_a_config_tells_the_slots_of_hosts_that_the_log_names(folder: Path) -> None:
    plant = Plant((Host("gpu", "simulated", slots=3),), (Lane("slow", max_running=1),))
    Path("log.csv").write_text("id,host,start,end\na,gpu,0,1\nb,cpu,0,1\n")
    assert read_log("log.csv", plant=plant).recording.plant == plant
    Path("log.csv").write_text("id,lane,start,end\na,slow,0,1\n")
    assert read_log("log.csv", plant=plant).recording.plant == plant
    Path("log.csv").write_text("id,host,start,end\na,tpu,0,1\n")
    assert read_log("log.csv", plant=plant).recording.plant is None


def test_slots_of_foreign_hosts_can_be_told(folder: Path) -> None:
    plant = Plant((Host("gpu", "simulated", slots=3),))
    Path("log.csv").write_text("id,host,kind,start,end\na,gpu,k,0,1\nb,cpu,j,0,1\n")
    read = read_log("log.csv", plant=plant, slots={"gpu": 5, "cpu": 2})
    assert read.recording.plant is not None
    assert [(h.name, h.slots) for h in read.recording.plant.hosts] == [("gpu", 5), ("cpu", 2)]
    assert read.recording.plant.hosts[1].serves == ("j",)
    with pytest.raises(UsageError, match=r"--slots: the log has no host 'tpu'; did you mean 'gpu'\?"):
        read_log("log.csv", slots={"tpu": 1})


# ---- what is refused


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "log.csv: is empty; a log has a row per attempt"),
        ("\r\n \n", "log.csv: is empty; a log has a row per attempt"),
        ("task,started,ended\n", "log.csv: has no rows; a log has a row per attempt"),
        (
            "task,ended\na,1\n",
            "log.csv: no column tells when an attempt started; name it with --map started=COLUMN; "
            "columns: task, ended",
        ),
        (
            "task,started\na,1\n",
            "log.csv: no column tells when an attempt ended, or how long it took; name it with "
            "--map ended=COLUMN; columns: task, started",
        ),
        (
            "task,event\na,start\n",
            "log.csv: no column tells when an event happened; name it with --map time=COLUMN; "
            "columns: task, event",
        ),
        (
            "ts,event\n1,start\n",
            "log.csv: no column tells whose event it is; name it with --map task=COLUMN; columns: ts, event",
        ),
        (
            "id,start,end\na,0,1\nb,soon,2\n",
            "log.csv:3: start: 'soon' is no time; write ISO 8601, seconds or an epoch, "
            "HH:MM:SS, MM:SS, or a length like 26m37s",
        ),
        (
            "id,start,took\nb,1,long\n",
            "log.csv:2: took: 'long' is no length of time; write seconds, HH:MM:SS or 26m37s",
        ),
        (
            "id,start,end\na,9,1\n",
            "log.csv:2: end: is earlier than its start; map started and ended the right way round",
        ),
        (
            "id,start,end\na,2,1\n",
            "log.csv:2: end: is earlier than its start; map started and ended the right way round",
        ),
        (
            "id,start,end\na,10.5,10.2\n",
            "log.csv:2: end: is earlier than its start; map started and ended the right way round",
        ),
        (
            "id,ts,colour\na,10.5,red\n",
            "log.csv: no column tells when an attempt started; name it with --map started=COLUMN, or the one of "
            "events with --map event=COLUMN; columns: id, ts, colour",
        ),
        (
            "id,created,start,end\na,9,1,10\n",
            "log.csv:2: created: is later than its start; map queued and started the right way round",
        ),
        (
            "id,start,end\na,,1\n",
            "log.csv:2: start: is empty; a row needs the time of its start, or only that it was queued",
        ),
        (
            "id,start,end,ok\na,0,,yes\n",
            "log.csv:2: end: is empty although the attempt is over; complete the row",
        ),
        (
            "id,start,end\na,0,1,2\n",
            "log.csv:2: has 4 fields where the first row has 3; quote what holds the delimiter",
        ),
        ("id,start,end\na,0,1\nb,2\n", "log.csv:3: has 2 fields where the first row has 3; complete the row"),
        (
            'id,start,end\n"a,0,1\n',
            "log.csv:2: is not CSV: unexpected end of data; mend the quotes of this row",
        ),
        (
            "id,start,end,status\na,0,1,mauve\n",
            "log.csv:2: status: 'mauve' is no state; write done, failed, cancelled or "
            "running, or leave the column aside with --map state=",
        ),
        (
            "id,start,end,prio\na,0,1,70\n",
            "log.csv:2: prio: '70' is not 0 (most urgent) to 4; leave the column aside with --map priority=",
        ),
        (
            "id,start,end,try\na,0,1,x\n",
            "log.csv:2: try: must be a whole number from 0; leave the column aside with --map attempt=",
        ),
        (
            "id,start,end,cost\na,0,1,-2\n",
            "log.csv:2: cost: must be an amount in USD, from 0; leave the column aside with --map cost=",
        ),
        (
            "id,start,end,try\na,0,1,1\na,2,3,1\n",
            "log.csv:3: task 'a' has its attempt 1 on line 2 already; map task to a "
            "column that is unique, or leave the numbers aside with --map attempt=",
        ),
        (
            "id,start,end\na,2026-03-01T10:00:00Z,2026-03-01T10:00:00\n",
            "log.csv:2: end: is one of times of the calendar "
            "without a zone among times of the calendar; write all times alike",
        ),
        (
            "id,start,end\na,0,1772359200\n",
            "log.csv:2: end: is one of times of the calendar among times within the run; "
            "write all times alike",
        ),
        (
            "ts,event,id\n1,start,a\n2,start,a\n",
            "log.csv:3: event: task 'a' starts again before its start of line 2 has ended",
        ),
        (
            "ts,event,id\n1,end,a\n",
            "log.csv:2: event: task 'a' ends and never started; is the beginning of the log cut off?",
        ),
        (
            "ts,event,id\n1,ping,a\n",
            "log.csv: no event says that a task started; map event to the column that does, with "
            "--map event=COLUMN",
        ),
        ("ts,event,id\n1,start,\n", "log.csv:2: id: is empty; an event must say whose it is"),
        ("ts,event,id\n,start,a\n", "log.csv:2: ts: is empty; an event needs its time"),
        (
            "a,1\nb,2\n",
            "log.csv: has no header and 1 columns of times; say which is which, such as --map started=2 "
            "--map ended=3",
        ),
        (b"id,start,end\n\xff,0,1\n", "log.csv:2: is not UTF-8 text; save the log as UTF-8"),
    ],
)
def test_bad_rows_are_told_with_place_and_remedy(folder: Path, text: str | bytes, told: str) -> None:
    """Promise 7."""
    assert refused(folder, text) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"id": 1\n', "log.jsonl:1: is not JSON: input data was truncated; correct it"),
        (
            '{"id": "a", "start": 0, "end": 1}\n[1]\n',
            "log.jsonl:2: must be an object with a row's values, not a list",
        ),
        (
            '{"id": "a", "start": [0], "end": 1}\n',
            "log.jsonl:1: start: a list is no time; write ISO 8601, seconds or an "
            "epoch, HH:MM:SS, MM:SS, or a length like 26m37s",
        ),
        (
            '{"id": "a", "start": true, "end": 1}\n',
            "log.jsonl:1: start: true is no time; write ISO 8601, seconds or an "
            "epoch, HH:MM:SS, MM:SS, or a length like 26m37s",
        ),
        ('{"id": ["a"], "start": 0, "end": 1}\n', "log.jsonl:1: id: must be a text or a number, not a list"),
        (
            '{"penstock_export": 9, "run": "x"}\n',
            "log.jsonl: line 1: not a line of a Penstock export (its format is 9 and "
            "this Penstock reads 1); export the run again",
        ),
        (
            '{"penstock_export": 1, "run": "x"}\n{"a"\n',
            "log.jsonl:2: is not JSON (Input data was truncated); export the run again",
        ),
        (b'{"id": "\xff"}\n', "log.jsonl:1: is not UTF-8 text; save the log as UTF-8"),
    ],
)
def test_bad_json_is_told_with_its_line(folder: Path, text: str | bytes, told: str) -> None:
    """Promise 7."""
    assert refused(folder, text, "log.jsonl") == told


def test_the_line_of_an_entry_of_an_array_is_told(folder: Path) -> None:
    text = '[\n  {"id": "a", "start": 0, "end": 1},\n  {"id": "b",\n   "start": "x", "end": 1}\n]'
    assert refused(folder, text, "log.json").startswith("log.json:3: start: 'x' is no time")
    assert (
        refused(folder, "[1,", "log.json") == "log.json:1: is not JSON: input data was truncated; correct it"
    )


def test_a_file_that_cannot_be_read_is_told(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.csv: there is no such file"):
        read_log(Path("gone.csv"))
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_log(folder)


def test_limits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "id,start,end\n" + "a,0,1\n" * 3
    array = json.dumps([{"id": "a", "start": 0, "end": 1}] * 3)
    monkeypatch.setattr(logrows, "MAX_ROWS", 2)
    assert refused(folder, rows) == "log.csv:4: is row 3; at most 2 are read, give a part of it"
    assert "is row 3" in refused(folder, array, "log.json")
    assert "is row 3" in refused(folder, "\n".join(map(json.dumps, json.loads(array))), "log.jsonl")
    monkeypatch.setattr(logrows, "MAX_COLUMNS", 2)
    assert refused(folder, rows) == "log.csv:1: has 3 columns; at most 2 are read"
    assert "brings more than 2 columns" in refused(folder, array, "log.json")
    monkeypatch.setattr(logrows, "MAX_LINE_BYTES", 4)
    assert "log.csv:1: is over 0 MiB" in refused(folder, rows)
    assert "log.jsonl:1: is over 0 MiB" in refused(folder, '{"id": 1}', "log.jsonl")
    monkeypatch.setattr(logrows, "MAX_LOG_BYTES", 4)
    assert refused(folder, rows) == "log.csv: is over 0 MiB; give a part of it"


def test_deeply_nested_json_is_refused_or_read(folder: Path) -> None:
    deep = '{"a":' * 900 + "1" + "}" * 900
    assert "no column tells" in refused(folder, deep, "log.jsonl")
    assert "nested too deeply" in refused(folder, '{"a":' * 100_000, "log.jsonl")


def test_events_of_celery_are_told_by_their_type(folder: Path) -> None:
    events = (
        ("worker-online", "", 0),
        ("task-received", "a", 1),
        ("task-started", "a", 2),
        ("task-received", "b", 2),
        ("task-succeeded", "a", 5),
        ("task-started", "b", 5),
        ("task-failed", "b", 9),
    )
    rows = [
        f'{{"type": "{type_}", "uuid": "{uuid}", "hostname": "celery@gpu1", "timestamp": {1.7e9 + at}}}'
        for type_, uuid, at in events
    ]
    (folder / "events.jsonl").write_text("\n".join(rows))
    recording = read_log("events.jsonl").recording
    assert [(a.task, a.host, a.started_at - 1.7e9) for a in recording.attempts] == [
        ("a", "celery@gpu1", 2),
        ("b", "celery@gpu1", 5),
    ]
    assert [r.task.queued_at - 1.7e9 for r in recording.tasks] == [1, 2]
    assert [str(r.state) for r in recording.tasks] == ["done", "failed"]


@pytest.mark.parametrize("column", ["queued_dttm", "sent", "received"])
def test_other_systems_words_for_queued(folder: Path, column: str) -> None:
    (folder / "log.csv").write_text(f"task_id,{column},start_date,end_date,hostname\na,1,2,3,w\n")
    recording = read_log("log.csv").recording
    assert recording.tasks[0].task.queued_at == 1
    assert (recording.attempts[0].started_at, recording.attempts[0].ended_at) == (2, 3)


def test_epochs_and_dates_with_a_zone_are_of_one_sort(folder: Path) -> None:
    (folder / "log.csv").write_text("id,start,end\na,1700000000,2023-11-14T22:13:25Z\n")
    recording = read_log("log.csv").recording
    assert recording.makespan_s == 5
