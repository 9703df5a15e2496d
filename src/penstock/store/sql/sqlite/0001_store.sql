-- Version 1. Ids of tasks sort by time, so every index here is appended to rather than scattered over.

-- AUTOINCREMENT: a number is never used again, even when the newest row is pruned. Dispatchers and readers
-- resume "after number n" and would miss a row that took an old number.
CREATE TABLE tasks (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT NOT NULL UNIQUE,
    state       TEXT NOT NULL DEFAULT 'queued',
    attempts    INTEGER NOT NULL DEFAULT 0,
    tries       INTEGER NOT NULL DEFAULT 0,
    host_faults INTEGER NOT NULL DEFAULT 0,
    retry_at    REAL,
    ran_on      TEXT,
    started_at  REAL,
    ended_at    REAL,
    ended_event INTEGER,
    error       TEXT,
    value       TEXT,
    run         TEXT NOT NULL,
    kind        TEXT NOT NULL,
    lane        TEXT NOT NULL,
    priority    INTEGER NOT NULL,
    queued_at   REAL NOT NULL,
    "after"     TEXT,
    needs       TEXT,
    host        TEXT,
    model       TEXT,
    timeout_s   REAL,
    deadline    REAL,
    not_before  REAL,
    retries     INTEGER,
    key         TEXT,
    on_crash    TEXT NOT NULL DEFAULT 'retry',
    payload     TEXT
);
-- By `ended_at`, not by state: a start then changes no index.
CREATE INDEX tasks_live ON tasks (number) WHERE ended_at IS NULL;
CREATE INDEX tasks_run ON tasks (run);
CREATE INDEX tasks_ended ON tasks (run, ended_event) WHERE ended_event IS NOT NULL;
CREATE UNIQUE INDEX tasks_key ON tasks (key) WHERE key IS NOT NULL;

-- Long payloads live apart: a change of state rewrites the task's row, and must not rewrite those with it.
CREATE TABLE payloads (
    number  INTEGER PRIMARY KEY,
    payload TEXT NOT NULL
);

-- A task as it is read, in the order of `rows.py`: without what it carries, and with it.
CREATE VIEW records AS
SELECT number, id, run, kind, lane, priority, queued_at, "after", needs, host, model, timeout_s, deadline,
       not_before, retries, key, on_crash, state, attempts, tries, host_faults, retry_at, ran_on, started_at,
       ended_at, error
FROM tasks;

CREATE VIEW full_records AS
SELECT number, id, run, kind, lane, priority, queued_at, "after", needs, host, model, timeout_s, deadline,
       not_before, retries, key, on_crash, state, attempts, tries, host_faults, retry_at, ran_on, started_at,
       ended_at, error, value,
       coalesce(payload, (SELECT p.payload FROM payloads AS p WHERE p.number = tasks.number)) AS payload
FROM tasks;

-- How many tasks ended in each state, so that `status` need not count a long history.
CREATE TABLE tally (
    state TEXT PRIMARY KEY,
    tasks INTEGER NOT NULL
) WITHOUT ROWID;

-- Where a submit's events begin: the log of one task is read from here, without an index on the log.
CREATE TABLE batches (
    first INTEGER PRIMARY KEY,
    event INTEGER NOT NULL
);

CREATE TABLE attempts (
    task       TEXT NOT NULL,
    number     INTEGER NOT NULL,
    host       TEXT NOT NULL,
    lane       TEXT NOT NULL,
    started_at REAL NOT NULL,
    work_class INTEGER NOT NULL,
    ended_at   REAL,
    verdict    TEXT,
    error      TEXT,
    retry_at   REAL,
    imported   INTEGER,
    PRIMARY KEY (task, number)
) WITHOUT ROWID;
-- Who held the slots in some stretch of time. Imported attempts held none of ours.
CREATE INDEX attempts_ended ON attempts (ended_at, started_at) WHERE ended_at IS NOT NULL AND imported IS NULL;

CREATE TABLE events (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    at      REAL NOT NULL,
    type    TEXT NOT NULL,
    task    TEXT,
    attempt INTEGER,
    host    TEXT,
    data    TEXT
);
-- AUTOINCREMENT keeps its counters in rows that appear with the first insert; readers want them from the start.
INSERT INTO sqlite_sequence (name, seq) VALUES ('tasks', 0), ('events', 0);

CREATE TABLE requests (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    verb        TEXT NOT NULL,
    args        TEXT NOT NULL,
    asked_at    REAL NOT NULL,
    answered_at REAL,
    ok          INTEGER,
    detail      TEXT,
    data        TEXT
);
CREATE INDEX requests_open ON requests (number) WHERE answered_at IS NULL;

CREATE TABLE routes (
    key        TEXT NOT NULL,
    at         REAL NOT NULL,
    work_class INTEGER NOT NULL,
    name       TEXT NOT NULL
);
CREATE INDEX routes_key ON routes (key, at);

CREATE TABLE moves (
    task       TEXT NOT NULL,
    at         REAL NOT NULL,
    work_class INTEGER NOT NULL,
    why        TEXT NOT NULL
);
CREATE INDEX moves_task ON moves (task, at);

-- When an ended task was not in the queue, until somebody wanted it again.
CREATE TABLE rests (
    task    TEXT NOT NULL,
    began   REAL NOT NULL,
    revived REAL NOT NULL
);
CREATE INDEX rests_task ON rests (task);

CREATE TABLE stretches (
    work_class INTEGER NOT NULL,
    at         REAL NOT NULL,
    reason     TEXT,
    detail     TEXT NOT NULL
);
CREATE INDEX stretches_class ON stretches (work_class, at);

CREATE TABLE hosts (
    host       TEXT PRIMARY KEY,
    state      TEXT NOT NULL,
    slots      INTEGER NOT NULL,
    detail     TEXT NOT NULL,
    changed_at REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE lanes (
    lane       TEXT PRIMARY KEY,
    paused     INTEGER NOT NULL,
    changed_at REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE gates (
    gate       TEXT PRIMARY KEY,
    open       INTEGER NOT NULL,
    detail     TEXT NOT NULL,
    changed_at REAL NOT NULL
) WITHOUT ROWID;

-- One row: whether everything is paused.
CREATE TABLE everything (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    paused     INTEGER NOT NULL,
    changed_at REAL NOT NULL
);

CREATE TABLE epochs (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    pid        INTEGER NOT NULL,
    machine    TEXT NOT NULL,
    command    TEXT NOT NULL,
    started_at REAL NOT NULL,
    seen_at    REAL NOT NULL,
    ended_at   REAL
);

-- What explains an imported run: other runs' attempts, routes, stretches and epochs of where it ran. It is kept
-- whole and apart, because its hosts, classes and times are not those of this store.
CREATE TABLE imports (
    run          TEXT PRIMARY KEY,
    imported_at  REAL NOT NULL,
    lowest_class INTEGER NOT NULL,
    material     TEXT NOT NULL
) WITHOUT ROWID;

-- Tasks of other runs that imported ones come after.
CREATE TABLE foreign_tasks (
    id     TEXT NOT NULL,
    run    TEXT NOT NULL,
    state  TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (id, run)
) WITHOUT ROWID;
