-- Version 1. All tables stand in a schema of their own, which is the search path while this runs.

-- Texts compare byte by byte, in whatever language the database was made: names are found by how they begin, and
-- come in the same order from every store. Times are seconds since 1970 as the dispatcher told them. JSON is kept as
-- the text it came as: the database's own type refuses a character that payloads may hold.

-- One row. Whoever adds tasks or events holds it until it has committed: so numbers become visible in their order,
-- and none is ever used again. A dispatcher's transactions look at `epoch` under the same lock: that fences one which
-- another has taken over from, however late it wakes up.
CREATE TABLE heads (
    one    integer PRIMARY KEY CHECK (one = 1),
    tasks  bigint NOT NULL,
    events bigint NOT NULL,
    epoch  bigint NOT NULL
) WITH (fillfactor = 20);
INSERT INTO heads (one, tasks, events, epoch) VALUES (1, 0, 0, 0);

-- One row: the last sign of life of the dispatcher, by the database's own clock. Apart from `heads`, which a large
-- submit may hold for long.
CREATE TABLE leader (
    one     integer PRIMARY KEY CHECK (one = 1),
    beat_at double precision NOT NULL,
    lease_s double precision NOT NULL,
    process text COLLATE "C" NOT NULL
) WITH (fillfactor = 20);
INSERT INTO leader (one, beat_at, lease_s, process) VALUES (1, 0, 0, '');

-- What each writer has committed last. A transaction moves its writer's mark by one from where that must be: when the
-- answer to a commit never came, moving the mark away tells whether it happened, and that it cannot happen any more.
CREATE TABLE marks (
    writer text COLLATE "C" PRIMARY KEY,
    mark   bigint NOT NULL,
    at     timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 20);

CREATE TABLE tasks (
    number      bigint PRIMARY KEY,
    id          text COLLATE "C" NOT NULL,
    state       text COLLATE "C" NOT NULL DEFAULT 'queued',
    attempts    bigint NOT NULL DEFAULT 0,
    tries       bigint NOT NULL DEFAULT 0,
    host_faults bigint NOT NULL DEFAULT 0,
    priority    bigint NOT NULL,
    retries     bigint,
    retry_at    double precision,
    started_at  double precision,
    ended_at    double precision,
    ended_event bigint,
    queued_at   double precision NOT NULL,
    timeout_s   double precision,
    deadline    double precision,
    not_before  double precision,
    is_unwell   boolean,  -- it ended otherwise than done
    ran_on      text COLLATE "C",
    error       text COLLATE "C",
    value       text COLLATE "C",
    run         text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    lane        text COLLATE "C" NOT NULL,
    "after"     text COLLATE "C",
    needs       text COLLATE "C",
    host        text COLLATE "C",
    model       text COLLATE "C",
    key         text COLLATE "C",
    on_crash    text COLLATE "C" NOT NULL DEFAULT 'retry',
    payload     text COLLATE "C",
    trace       text COLLATE "C",
    output      text COLLATE "C"
-- Room for a second version of every row beside the first: a start changes no column that an index names, so it is
-- written there and touches no index.
) WITH (fillfactor = 45);
CREATE UNIQUE INDEX tasks_id ON tasks (id);
CREATE INDEX tasks_live ON tasks (number) WHERE ended_at IS NULL;
CREATE INDEX tasks_next ON tasks (priority, queued_at) WHERE ended_at IS NULL;
CREATE INDEX tasks_run ON tasks (run, number);
CREATE INDEX tasks_ended ON tasks (run, ended_event) WHERE ended_event IS NOT NULL;
CREATE UNIQUE INDEX tasks_key ON tasks (key) WHERE key IS NOT NULL;
CREATE INDEX tasks_unwell ON tasks (number) WHERE is_unwell;
-- A file's name may be longer than an ordinary index takes.
CREATE INDEX tasks_by_output ON tasks USING hash (output) WHERE output IS NOT NULL;

-- Long payloads live apart: a change of state rewrites the task's row, and must not rewrite those with it.
CREATE TABLE payloads (
    number  bigint PRIMARY KEY,
    payload text COLLATE "C" NOT NULL
);

-- A task as it is read, in the order of `rows.py`: without what it carries, and with it.
CREATE VIEW records AS
SELECT number, id, run, kind, lane, priority, queued_at, "after", needs, host, model, timeout_s, deadline,
       not_before, retries, key, on_crash, state, attempts, tries, host_faults, retry_at, ran_on, started_at,
       ended_at, error, trace, output
FROM tasks;

CREATE VIEW full_records AS
SELECT number, id, run, kind, lane, priority, queued_at, "after", needs, host, model, timeout_s, deadline,
       not_before, retries, key, on_crash, state, attempts, tries, host_faults, retry_at, ran_on, started_at,
       ended_at, error, trace, output, value,
       coalesce(payload, (SELECT p.payload FROM payloads AS p WHERE p.number = tasks.number)) AS payload
FROM tasks;

-- How many tasks ended in each state, so that `status` need not count a long history.
CREATE TABLE tally (
    state text COLLATE "C" PRIMARY KEY,
    tasks bigint NOT NULL
) WITH (fillfactor = 20);

-- Where a submit's events begin: the log of one task is read from here, without an index on the log.
CREATE TABLE batches (
    first bigint PRIMARY KEY,
    event bigint NOT NULL
);

CREATE TABLE attempts (
    task       text COLLATE "C" NOT NULL,
    number     bigint NOT NULL,
    work_class bigint NOT NULL,
    started_at double precision NOT NULL,
    ended_at   double precision,
    retry_at   double precision,
    imported   bigint,
    host       text COLLATE "C" NOT NULL,
    lane       text COLLATE "C" NOT NULL,
    verdict    text COLLATE "C",
    error      text COLLATE "C",
    PRIMARY KEY (task, number)
) WITH (fillfactor = 70);
-- Who held the slots in some stretch of time. Imported attempts held none of ours.
CREATE INDEX attempts_ended ON attempts (ended_at, started_at) WHERE ended_at IS NOT NULL AND imported IS NULL;

CREATE TABLE events (
    number  bigint PRIMARY KEY,
    at      double precision NOT NULL,
    attempt bigint,
    type    text COLLATE "C" NOT NULL,
    task    text COLLATE "C",
    host    text COLLATE "C",
    data    text COLLATE "C"
);
-- Few events are of these types; the others touch neither index.
CREATE INDEX events_conditions ON events (at) WHERE type IN ('host', 'lane', 'gate', 'all', 'Stall');
CREATE INDEX events_spent ON events (task) WHERE type = 'spent';

CREATE TABLE requests (
    number      bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    verb        text COLLATE "C" NOT NULL,
    args        text COLLATE "C" NOT NULL,
    asked_at    double precision NOT NULL,
    answered_at double precision,
    ok          bigint,
    detail      text COLLATE "C",
    data        text COLLATE "C"
);
CREATE INDEX requests_open ON requests (number) WHERE answered_at IS NULL;

-- `row` in these tables is the order in which they were written: times alone may be the same.
CREATE TABLE routes (
    row        bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    key        text COLLATE "C" NOT NULL,
    at         double precision NOT NULL,
    work_class bigint NOT NULL,
    name       text COLLATE "C" NOT NULL
);
CREATE INDEX routes_key ON routes USING hash (key);

CREATE TABLE moves (
    row        bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    task       text COLLATE "C" NOT NULL,
    at         double precision NOT NULL,
    work_class bigint NOT NULL,
    why        text COLLATE "C" NOT NULL
);
CREATE INDEX moves_task ON moves (task, at);

-- When an ended task was not in the queue, until somebody wanted it again; and how many attempts it had made.
CREATE TABLE rests (
    row      bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    task     text COLLATE "C" NOT NULL,
    began    double precision NOT NULL,
    revived  double precision NOT NULL,
    attempts bigint
);
CREATE INDEX rests_task ON rests (task);

CREATE TABLE stretches (
    row        bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    work_class bigint NOT NULL,
    at         double precision NOT NULL,
    reason     text COLLATE "C",
    detail     text COLLATE "C" NOT NULL
);
CREATE INDEX stretches_class ON stretches (work_class, at, row);

-- What a task's priority was before it was changed explains its waits.
CREATE TABLE priority_changes (
    row      bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    task     text COLLATE "C" NOT NULL,
    at       double precision NOT NULL,
    was      bigint NOT NULL,
    priority bigint NOT NULL
);
CREATE INDEX priority_changes_task ON priority_changes (task, at);

CREATE TABLE hosts (
    host       text COLLATE "C" PRIMARY KEY,
    state      text COLLATE "C" NOT NULL,
    slots      bigint NOT NULL,
    detail     text COLLATE "C" NOT NULL,
    changed_at double precision NOT NULL
);

CREATE TABLE lanes (
    lane       text COLLATE "C" PRIMARY KEY,
    paused     bigint NOT NULL,
    changed_at double precision NOT NULL
);

CREATE TABLE gates (
    gate       text COLLATE "C" PRIMARY KEY,
    open       bigint NOT NULL,
    detail     text COLLATE "C" NOT NULL,
    changed_at double precision NOT NULL
);

-- One row: whether everything is paused.
CREATE TABLE everything (
    one        bigint PRIMARY KEY CHECK (one = 1),
    paused     bigint NOT NULL,
    changed_at double precision NOT NULL
);

CREATE TABLE epochs (
    number       bigint PRIMARY KEY,
    pid          bigint NOT NULL,
    machine      text COLLATE "C" NOT NULL,
    command      text COLLATE "C" NOT NULL,
    answers_only bigint NOT NULL DEFAULT 0,
    started_at   double precision NOT NULL,
    seen_at      double precision NOT NULL,
    ended_at     double precision,
    plant        text COLLATE "C",
    url          text COLLATE "C" NOT NULL DEFAULT ''  -- where others reach it
) WITH (fillfactor = 20);

-- What explains an imported run: other runs' attempts, routes, stretches and epochs of where it ran. It is kept
-- whole and apart, because its hosts, classes and times are not those of this store.
CREATE TABLE imports (
    run          text COLLATE "C" PRIMARY KEY,
    imported_at  double precision NOT NULL,
    lowest_class bigint NOT NULL,
    material     text COLLATE "C" NOT NULL
);

-- Tasks of other runs that imported ones come after.
CREATE TABLE foreign_tasks (
    id     text COLLATE "C" NOT NULL,
    run    text COLLATE "C" NOT NULL,
    state  text COLLATE "C" NOT NULL,
    record text COLLATE "C" NOT NULL,
    PRIMARY KEY (id, run)
);

-- Who may come in through `serve`. Of a secret only its digest is here.
CREATE TABLE tokens (
    name             text COLLATE "C" PRIMARY KEY,
    id               text COLLATE "C" NOT NULL UNIQUE,
    digest           text COLLATE "C" NOT NULL,
    scopes           text COLLATE "C" NOT NULL,
    lane             text COLLATE "C",
    priority         bigint,
    requests_per_min double precision,
    max_queued       bigint,
    created_at       double precision NOT NULL
);

-- What attempts cost, added up. Days are counted in UTC from 1970-01-01.
CREATE TABLE spending (
    day   bigint NOT NULL,
    host  text COLLATE "C" NOT NULL,
    lane  text COLLATE "C" NOT NULL,
    usd   double precision NOT NULL,
    calls bigint NOT NULL,
    PRIMARY KEY (day, host, lane)
) WITH (fillfactor = 50);

-- Names that somebody holds for a while, across machines; by the database's clock.
CREATE TABLE leases (
    name       text COLLATE "C" PRIMARY KEY,
    owner      text COLLATE "C" NOT NULL,
    note       text COLLATE "C" NOT NULL,
    since      double precision NOT NULL,
    expires_at double precision NOT NULL
) WITH (fillfactor = 50);

-- Log-ins of the board: what signs them, and those that were ended before their time.
CREATE TABLE secrets (
    name  text COLLATE "C" PRIMARY KEY,
    value bytea NOT NULL
);

CREATE TABLE ended_sessions (
    id         text COLLATE "C" PRIMARY KEY,
    expires_at double precision NOT NULL
);

-- For statements that write on belief: what must hold, or nothing of the statement does.
CREATE FUNCTION must(holds boolean, what text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF holds THEN
        RETURN true;
    END IF;
    RAISE EXCEPTION 'not as believed: %', what USING ERRCODE = 'PS001';
END
$$;
