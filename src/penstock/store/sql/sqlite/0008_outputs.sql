-- Version 8. A task may name the file that its value is saved in.

ALTER TABLE tasks ADD COLUMN output TEXT;
CREATE INDEX IF NOT EXISTS tasks_by_output ON tasks (output) WHERE output IS NOT NULL;

DROP VIEW records;
CREATE VIEW records AS
SELECT number, id, run, kind, lane, priority, queued_at, "after", needs, host, model, timeout_s, deadline,
       not_before, retries, key, on_crash, state, attempts, tries, host_faults, retry_at, ran_on, started_at,
       ended_at, error, trace, output
FROM tasks;

DROP VIEW full_records;
CREATE VIEW full_records AS
SELECT number, id, run, kind, lane, priority, queued_at, "after", needs, host, model, timeout_s, deadline,
       not_before, retries, key, on_crash, state, attempts, tries, host_faults, retry_at, ran_on, started_at,
       ended_at, error, trace, output, value,
       coalesce(payload, (SELECT p.payload FROM payloads AS p WHERE p.number = tasks.number)) AS payload
FROM tasks;
