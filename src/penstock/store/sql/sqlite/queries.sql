-- Named queries. `{rows}` stands for as many rows of parameters as are written at once.

-- ==== submit

-- name: counters
SELECT (SELECT seq FROM sqlite_sequence WHERE name = 'tasks'), (SELECT seq FROM sqlite_sequence WHERE name = 'events')

-- Where numbers of tasks and events go on for what a submit adds.
-- name: from_here
SELECT (SELECT seq FROM sqlite_sequence WHERE name = 'tasks'), (SELECT seq FROM sqlite_sequence WHERE name = 'events')

-- name: known_keys
SELECT key, id FROM tasks WHERE key IN (SELECT value FROM json_each(?))

-- name: known_ids
SELECT id FROM tasks WHERE id IN (SELECT value FROM json_each(?))

-- name: add_tasks
INSERT INTO tasks (id, run, kind, lane, priority, queued_at, "after", needs, host, model, timeout_s, deadline,
                   not_before, retries, key, on_crash, payload, trace, output)
VALUES {rows}

-- name: add_payload
INSERT INTO payloads (number, payload) VALUES (?, ?)

-- name: add_batches
INSERT INTO batches (first, event) VALUES {rows}

-- name: add_payload_here
INSERT INTO payloads (number, payload) VALUES (?, ?)

-- name: add_batches_here
INSERT INTO batches (first, event) VALUES {rows}

-- name: add_submitted
INSERT INTO events (at, type, task, data)
SELECT at, 'submitted', task, '{"run":' || run || ',"count":' || count || ',"first":' || first || ',"last":' || last || '}'
FROM (WITH v (at, task, run, count, first, last) AS (VALUES {rows}) SELECT * FROM v)

-- name: set_file_run
INSERT INTO task_files (file, run) VALUES (?, ?) ON CONFLICT (file) DO UPDATE SET run = excluded.run

-- name: add_events
INSERT INTO events (at, type, task, attempt, host, data) VALUES {rows}

-- ==== record

-- A task moves on only from where the dispatcher believed it to be: the row count tells whether all did. The driver
-- counts only for statements that begin with UPDATE, so the names of the columns are given inside.
-- name: move_live
UPDATE tasks
SET state = v.state,
    attempts = coalesce(v.attempts, tasks.attempts),
    tries = coalesce(v.tries, tasks.tries),
    host_faults = coalesce(v.host_faults, tasks.host_faults),
    retry_at = v.retry_at,
    ran_on = coalesce(v.ran_on, tasks.ran_on),
    started_at = coalesce(v.started_at, tasks.started_at)
FROM (WITH v (id, was, least, most, state, attempts, tries, host_faults, retry_at, ran_on, started_at)
      AS (VALUES {rows}) SELECT * FROM v) AS v
WHERE tasks.id = v.id AND tasks.state = v.was AND tasks.attempts BETWEEN v.least AND v.most

-- The same for tasks that end or come back to life.
-- name: move_tasks
UPDATE tasks
SET state = v.state,
    attempts = coalesce(v.attempts, tasks.attempts),
    tries = coalesce(v.tries, tasks.tries),
    host_faults = coalesce(v.host_faults, tasks.host_faults),
    retry_at = v.retry_at,
    ran_on = coalesce(v.ran_on, tasks.ran_on),
    started_at = coalesce(v.started_at, tasks.started_at),
    ended_at = v.ended_at,
    ended_event = v.ended_event + (SELECT seq FROM sqlite_sequence WHERE name = 'events'),
    error = v.error,
    value = v.value
FROM (WITH v (id, was, least, most, state, attempts, tries, host_faults, retry_at, ran_on, started_at, ended_at,
              ended_event, error, value) AS (VALUES {rows})
      SELECT * FROM v) AS v
WHERE tasks.id = v.id AND tasks.state = v.was AND tasks.attempts BETWEEN v.least AND v.most

-- name: standing
SELECT id, state, attempts, ended_at FROM tasks WHERE id IN (SELECT value FROM json_each(?))

-- name: add_attempts
INSERT OR REPLACE INTO attempts (task, number, host, lane, started_at, work_class, ended_at, verdict, error, retry_at)
VALUES {rows}

-- name: begin_attempts
UPDATE attempts SET started_at = ?3 WHERE task = ?1 AND number = ?2

-- name: begin_tasks
UPDATE tasks SET started_at = ?3 WHERE id = ?1 AND attempts = ?2

-- name: end_attempts
UPDATE attempts
SET ended_at = v.ended_at, verdict = v.verdict, error = v.error, retry_at = v.retry_at
FROM (WITH v (task, number, ended_at, verdict, error, retry_at) AS (VALUES {rows}) SELECT * FROM v) AS v
WHERE attempts.task = v.task AND attempts.number = v.number

-- name: count_live
SELECT count(*) FROM tasks WHERE id IN (SELECT value FROM json_each(?)) AND ended_at IS NULL

-- name: set_priorities
UPDATE tasks SET priority = v.priority
FROM (WITH v (id, priority) AS (VALUES {rows}) SELECT * FROM v) AS v
WHERE tasks.id = v.id

-- name: add_priority_changes
INSERT INTO priority_changes (task, at, was, priority) VALUES {rows}

-- name: count_ended
INSERT INTO tally (state, tasks) VALUES (?, ?) ON CONFLICT (state) DO UPDATE SET tasks = tasks + excluded.tasks

-- name: add_route
INSERT INTO routes (key, at, work_class, name) VALUES (?, ?, ?, ?)

-- name: add_move
INSERT INTO moves (task, at, work_class, why) VALUES (?, ?, ?, ?)

-- name: add_rest
INSERT INTO rests (task, began, revived, attempts) VALUES (?, ?, ?, ?)

-- name: add_stretch
INSERT INTO stretches (work_class, at, reason, detail) VALUES (?, ?, ?, ?)

-- name: set_host
INSERT OR REPLACE INTO hosts (host, state, slots, detail, changed_at, error, needs_fix)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: set_lane
INSERT OR REPLACE INTO lanes (lane, paused, changed_at) VALUES (?, ?, ?)

-- name: set_gate
INSERT OR REPLACE INTO gates (gate, open, detail, changed_at) VALUES (?, ?, ?, ?)

-- name: add_spending
INSERT INTO spending (day, host, lane, usd, calls) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (day, host, lane) DO UPDATE SET usd = usd + excluded.usd, calls = calls + excluded.calls

-- name: set_everything
INSERT OR REPLACE INTO everything (one, paused, changed_at) VALUES (1, ?, ?)

-- ==== ownership

-- With since when it is stopping. Nobody else takes that lease, so it holds as long as the epoch, whatever its time.
-- name: last_epoch
SELECT number, pid, machine, command, answers_only, started_at, seen_at, ended_at, plant, url, only_run,
    (SELECT since FROM leases WHERE name = 'stopping/' || number)
FROM epochs ORDER BY number DESC LIMIT 1

-- name: add_epoch
INSERT INTO epochs (number, pid, machine, command, answers_only, started_at, seen_at, plant, url, only_run, config)
SELECT max(coalesce(max(number), 0), ?11) + 1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10 FROM epochs

-- name: epoch_config
SELECT config FROM epochs WHERE number = ?

-- name: is_epoch
SELECT 1 FROM epochs WHERE number = ? AND ended_at IS NULL

-- name: see_epoch
UPDATE epochs SET seen_at = max(seen_at, ?) WHERE number = ? AND ended_at IS NULL

-- name: end_epoch
UPDATE epochs SET ended_at = max(seen_at, ?) WHERE number = ? AND ended_at IS NULL

-- ==== requests

-- name: add_request
INSERT INTO requests (verb, args, asked_at) VALUES (?, ?, ?)

-- name: open_requests
SELECT number, verb, args FROM requests WHERE answered_at IS NULL ORDER BY number

-- name: answer_request
UPDATE requests SET answered_at = ?, ok = ?, detail = ?, data = ? WHERE number = ? AND answered_at IS NULL

-- name: request_answer
SELECT ok, detail, data FROM requests WHERE number = ? AND answered_at IS NOT NULL

-- ==== reading

-- name: ended_of_outputs
SELECT output, id FROM tasks WHERE output IN (SELECT value FROM json_each(?)) AND ended_at IS NOT NULL ORDER BY number

-- name: makers_of_outputs
SELECT output, id, key FROM tasks
WHERE output IN (SELECT value FROM json_each(?)) AND ended_at IS NULL AND key IS NOT NULL ORDER BY number

-- name: task
SELECT * FROM full_records WHERE id = ?

-- name: ids_between
SELECT id FROM tasks WHERE id >= ? AND id < ? ORDER BY id LIMIT 10

-- name: run_of_file
SELECT run FROM task_files WHERE file = ?

-- Of the index alone: no row is read.
-- name: runs_backwards
SELECT number, run FROM tasks WHERE ?1 IS NULL OR number < ?1 ORDER BY number DESC LIMIT ?2

-- name: first_of_run
SELECT min(number) FROM tasks WHERE run = ?

-- name: run_count
SELECT (SELECT count(*) FROM tasks WHERE run = ?1),
       (SELECT count(*) FROM tasks WHERE run = ?1 AND ended_event IS NOT NULL),
       (SELECT queued_at FROM tasks WHERE number = (SELECT min(number) FROM tasks WHERE run = ?1))

-- name: keys_between
SELECT key FROM tasks WHERE key IS NOT NULL AND key >= ? AND key < ? ORDER BY key LIMIT ?

-- A key that is the name, ends with it, or is of an issue that is called so. All keys are looked at, in their index.
-- name: keys_like
SELECT id, key FROM tasks
WHERE key IS NOT NULL AND (
    key = ?1
    OR substr(key, -1 - length(?1)) = '/' || ?1
    OR substr(key, -6 - length(?1)) = '/' || ?1 || '.json'
    OR substr(key, 1, 7 + length(?1)) = 'beads:' || ?1 || ':'
)
ORDER BY number DESC LIMIT 1000

-- name: runs_between
-- From name to name by the index: a run may have a million tasks.
WITH RECURSIVE names (run) AS (
    SELECT min(run) FROM tasks WHERE run >= ?1 AND run < ?2
    UNION ALL
    SELECT (SELECT min(t.run) FROM tasks AS t WHERE t.run > names.run AND t.run < ?2)
    FROM names WHERE names.run IS NOT NULL
)
SELECT run FROM names WHERE run IS NOT NULL LIMIT 10

-- One that was decided and has not begun is none yet.
-- name: attempts_of_task
SELECT task, number, host, lane, started_at, work_class, ended_at, verdict, error, retry_at
FROM attempts
WHERE task = ?
    AND (ended_at IS NOT NULL OR NOT EXISTS (
        SELECT 1 FROM tasks AS t
        WHERE t.id = attempts.task AND t.attempts = attempts.number AND t.state = 'running' AND t.started_at IS NULL))
ORDER BY number

-- name: events_after
SELECT number, at, type, task, attempt, host, data FROM events WHERE number > ? ORDER BY number LIMIT ?

-- name: events_begin
SELECT event FROM batches WHERE first <= (SELECT number FROM tasks WHERE id = ?) ORDER BY first DESC LIMIT 1

-- name: events_of_task
SELECT number, at, type, task, attempt, host, data
FROM events WHERE number > ? AND task = ? ORDER BY number LIMIT ?

-- name: ended_in_run
SELECT (SELECT ended_event FROM tasks WHERE tasks.number = r.number) AS event, r.*
FROM full_records AS r
WHERE r.number IN (SELECT number FROM tasks WHERE run = ? AND ended_event > ?)
ORDER BY event

-- name: states_in_run
SELECT state, count(*) FROM tasks WHERE run = ? GROUP BY state

-- name: live_in_run
SELECT (SELECT count(*) FROM tasks WHERE run = ?1)
     - (SELECT count(*) FROM tasks WHERE run = ?1 AND ended_event IS NOT NULL)

-- name: arrivals
SELECT r.*, CAST((SELECT f.payload FROM full_records AS f WHERE f.number = r.number) AS BLOB)
FROM records AS r
WHERE r.number > ? AND r.ended_at IS NULL ORDER BY r.number LIMIT ?

-- The same, and whether any request is open; one row of nothing else where nothing arrived.
-- name: incoming
SELECT r.*, q.asked, CAST((SELECT f.payload FROM full_records AS f WHERE f.number = r.number) AS BLOB)
FROM (SELECT EXISTS (SELECT 1 FROM requests WHERE answered_at IS NULL) AS asked) AS q
LEFT JOIN (SELECT * FROM records WHERE number > ? AND ended_at IS NULL ORDER BY number LIMIT ?) AS r ON 1
ORDER BY r.number

-- name: live_beyond
SELECT number FROM tasks WHERE ended_at IS NULL ORDER BY number LIMIT 1 OFFSET ?

-- name: queued
SELECT number, id, queued_at,
       state = 'queued' AND attempts = 0 AND tries = 0 AND host_faults = 0 AND retry_at IS NULL AND "after" IS NULL
       AND not_before IS NULL AND deadline IS NULL AND on_crash <> 'cancel'
       AND lane NOT IN (SELECT value FROM json_each(?)),
       kind, lane, host, model, needs, priority, retries
FROM tasks
WHERE number > ? AND ended_at IS NULL ORDER BY number LIMIT ?

-- name: fetch
SELECT r.*, CAST((SELECT f.payload FROM full_records AS f WHERE f.number = r.number) AS BLOB)
FROM records AS r
WHERE r.id IN (SELECT value FROM json_each(?)) ORDER BY r.number

-- name: states
SELECT id, state FROM tasks WHERE id IN (SELECT value FROM json_each(?))

-- name: tasks_numbered
SELECT number, id FROM tasks WHERE number IN (SELECT value FROM json_each(?))

-- name: foreign_states
SELECT id, state FROM foreign_tasks WHERE id IN (SELECT value FROM json_each(?))

-- name: runs_of
SELECT id, run FROM tasks WHERE id IN (SELECT value FROM json_each(?))

-- name: last_event
SELECT seq FROM sqlite_sequence WHERE name = 'events'

-- ==== tokens

-- name: add_token
INSERT OR IGNORE INTO tokens (name, id, digest, scopes, lane, priority, requests_per_min, max_queued, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: tokens
SELECT name, id, digest, scopes, lane, priority, requests_per_min, max_queued, created_at FROM tokens ORDER BY name

-- name: drop_token
DELETE FROM tokens WHERE name = ?

-- ==== sessions

-- name: keep_secret
INSERT INTO secrets (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING

-- name: secret
SELECT value FROM secrets WHERE name = ?

-- name: forget_sessions
DELETE FROM ended_sessions WHERE expires_at <= ?

-- name: end_session
INSERT INTO ended_sessions (id, expires_at) VALUES (?, ?)
ON CONFLICT (id) DO UPDATE SET expires_at = max(expires_at, excluded.expires_at)

-- name: ended_sessions
SELECT id, expires_at FROM ended_sessions WHERE expires_at > ?

-- ==== leases

-- name: lease
INSERT INTO leases (name, owner, note, since, expires_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE
SET owner = excluded.owner,
    note = excluded.note,
    since = CASE WHEN leases.owner = excluded.owner THEN leases.since ELSE excluded.since END,
    expires_at = excluded.expires_at
WHERE leases.owner = excluded.owner OR leases.expires_at <= ?

-- name: renew_lease
UPDATE leases SET expires_at = ?, note = ? WHERE name = ? AND owner = ?

-- name: end_lease
DELETE FROM leases WHERE name = ? AND owner = ?

-- name: lease_of
SELECT owner, note, since, expires_at FROM leases WHERE name = ? AND expires_at > ?

-- name: leases
SELECT name, owner, note, since, expires_at FROM leases
WHERE name >= ? AND name < ? AND expires_at > ? ORDER BY name

-- name: drop_leases
DELETE FROM leases WHERE expires_at < ?

-- ==== snapshot

-- name: live_counts
SELECT state, kind, lane, host, model, needs, ran_on, (state = 'running' AND started_at IS NULL) AS is_delayed, count(*)
FROM tasks
WHERE ended_at IS NULL
GROUP BY state, kind, lane, host, model, needs, ran_on, is_delayed

-- name: tally
SELECT state, tasks FROM tally WHERE tasks > 0

-- name: hosts
SELECT host, state, slots, detail, changed_at, error, needs_fix FROM hosts ORDER BY host

-- name: lanes
SELECT lane, paused FROM lanes ORDER BY lane

-- name: gates
SELECT gate, open, detail FROM gates ORDER BY gate

-- name: everything
SELECT paused FROM everything

-- name: spending
SELECT day, host, lane, usd, calls FROM spending WHERE day = ? ORDER BY host, lane

-- ==== this moment

-- name: newest_numbers
SELECT (SELECT seq FROM sqlite_sequence WHERE name = 'events'), (SELECT seq FROM sqlite_sequence WHERE name = 'tasks')

-- name: now_queued
SELECT kind, lane, host, model, needs, priority, ("after" IS NOT NULL OR not_before IS NOT NULL) AS tied, count(*)
FROM tasks
WHERE ended_at IS NULL AND state = 'queued' AND number > ?
GROUP BY kind, lane, host, model, needs, priority, tied

-- By how much that changed since an event, among tasks that were there: the first step since tells where one was.
-- name: now_queued_since
WITH touched (task, first, was) AS (
    SELECT task, min(number), (type = 'started' OR (type = 'ended' AND attempt IS NULL))
    FROM events
    WHERE number > ?1 AND type IN ('started', 'requeued', 'ended', 'revived') AND task IS NOT NULL
    GROUP BY task
)
SELECT t.kind, t.lane, t.host, t.model, t.needs, t.priority,
       (t."after" IS NOT NULL OR t.not_before IS NOT NULL) AS tied,
       sum((t.state = 'queued') - touched.was) AS change
FROM touched CROSS JOIN tasks AS t ON t.id = touched.task
WHERE t.number <= ?2
GROUP BY t.kind, t.lane, t.host, t.model, t.needs, t.priority, tied
HAVING change <> 0

-- The same where priorities were changed too: a task was counted at the one that the first change tells.
-- name: now_queued_since_changes
WITH steps (task, first, was) AS MATERIALIZED (
    SELECT task, min(number), (type = 'started' OR (type = 'ended' AND attempt IS NULL))
    FROM events
    WHERE number > ?1 AND type IN ('started', 'requeued', 'ended', 'revived') AND task IS NOT NULL
    GROUP BY task
),
changes (task, first, was) AS MATERIALIZED (
    SELECT task, min(number), data ->> 'from' FROM events WHERE number > ?1 AND type = 'reprioritized' GROUP BY task
),
moved AS (
    SELECT t.*, t.state = 'queued' AS queued, coalesce(steps.was, t.state = 'queued') AS was_queued,
           coalesce(changes.was, t.priority) AS was_priority
    FROM (SELECT task FROM steps UNION SELECT task FROM changes) AS touched
    CROSS JOIN tasks AS t ON t.id = touched.task
    LEFT JOIN steps ON steps.task = t.id
    LEFT JOIN changes ON changes.task = t.id
    WHERE t.number <= ?2
)
SELECT kind, lane, host, model, needs, place, ("after" IS NOT NULL OR not_before IS NOT NULL) AS tied, sum(one) AS change
FROM (SELECT *, priority AS place, queued AS one FROM moved
      UNION ALL SELECT *, was_priority, -was_queued FROM moved)
GROUP BY kind, lane, host, model, needs, place, tied
HAVING change <> 0

-- name: now_running
SELECT id, attempts, ran_on, key, kind, lane, priority, run, started_at, needs
FROM tasks
WHERE ended_at IS NULL AND state = 'running'

-- name: now_started
SELECT id, attempts, ran_on, key, kind, lane, priority, run, started_at, needs
FROM tasks
WHERE state = 'running' AND id IN (SELECT task FROM events WHERE number > ? AND type IN ('started', 'delayed', 'began', 'reprioritized'))

-- name: now_still_running
SELECT id, attempts FROM tasks WHERE state = 'running' AND id IN (SELECT value FROM json_each(?))

-- What their payloads call them: a text or a number.
-- name: labels
SELECT id, json_extract(payload, '$.id')
FROM full_records
WHERE id IN (SELECT value FROM json_each(?)) AND json_type(payload, '$.id') IN ('text', 'integer', 'real')

-- name: now_held
SELECT kind, lane, host, model, needs, sum(tied), sum(NOT tied)
FROM (SELECT kind, lane, host, model, needs,
             "after" IS NOT NULL AND EXISTS (
                 SELECT 1 FROM json_each(q."after") AS d LEFT JOIN tasks AS t ON t.id = d.value
                 WHERE t.id IS NOT NULL AND t.ended_at IS NULL
             ) AS tied,
             coalesce(max(coalesce(q.retry_at, 0), coalesce(q.not_before, 0)), 0) > ?1 AS early
      FROM tasks AS q
      WHERE ended_at IS NULL AND state = 'queued'
        AND ("after" IS NOT NULL OR not_before IS NOT NULL OR retry_at IS NOT NULL))
WHERE tied OR early
GROUP BY kind, lane, host, model, needs

-- name: now_ended
SELECT CAST(at / 60 AS INTEGER) AS minute, data ->> 'state' AS state, count(*)
FROM events
WHERE number > ?1 AND type = 'ended' AND at >= ?2
GROUP BY minute, state

-- The same where runs were imported of late: what ended elsewhere is not this plant's.
-- name: now_ended_here
SELECT CAST(e.at / 60 AS INTEGER) AS minute, e.data ->> 'state' AS state, count(*)
FROM events AS e
WHERE e.number > ?1 AND e.type = 'ended' AND e.at >= ?2
    AND NOT EXISTS (SELECT 1 FROM tasks AS t CROSS JOIN imports AS i ON i.run = t.run WHERE t.id = e.task)
GROUP BY minute, state

-- name: events_since
SELECT count(*), coalesce(max(type = 'requeued'), 0), coalesce(max(type = 'reprioritized'), 0) FROM events WHERE number > ?

-- name: event_at
SELECT at FROM events WHERE number >= ? ORDER BY number LIMIT 1

-- name: now_waits
SELECT k.value,
       (SELECT s.reason FROM stretches AS s WHERE s.work_class = r.work_class ORDER BY s.at DESC, s.rowid DESC LIMIT 1),
       (SELECT s.detail FROM stretches AS s WHERE s.work_class = r.work_class ORDER BY s.at DESC, s.rowid DESC LIMIT 1),
       (SELECT s.at FROM stretches AS s WHERE s.work_class = r.work_class ORDER BY s.at DESC, s.rowid DESC LIMIT 1)
FROM json_each(?1) AS k
CROSS JOIN routes AS r
    ON r.rowid = (SELECT o.rowid FROM routes AS o WHERE o.key = k.value ORDER BY o.at DESC, o.rowid DESC LIMIT 1)

-- name: now_conditions
SELECT 'lane', lane, changed_at FROM lanes
UNION ALL SELECT 'gate', gate, changed_at FROM gates
UNION ALL SELECT 'all', '', changed_at FROM everything

-- ==== the queue of now

-- name: running_records
SELECT * FROM records WHERE ended_at IS NULL AND state = 'running' ORDER BY number

-- name: queued_keys
SELECT lane, queued_at + priority * ?1 AS place, number
FROM tasks
WHERE ended_at IS NULL AND state = 'queued' AND place <= ?2

-- name: records_of_numbers
SELECT * FROM records WHERE number IN (SELECT value FROM json_each(?))

-- name: full_records_of_numbers
SELECT * FROM full_records WHERE number IN (SELECT value FROM json_each(?))

-- The least and the largest number in use.
-- name: bounds
SELECT coalesce((SELECT min(number) FROM tasks), 1), coalesce((SELECT max(number) FROM tasks), 0)

-- name: place_of_task
SELECT priority, queued_at FROM tasks WHERE number = ?

-- Of the indexes alone: no row is read.
-- name: numbers_by_id
SELECT number FROM tasks WHERE id >= ? AND id < ? LIMIT ?

-- name: numbers_by_key
SELECT number FROM tasks WHERE key IS NOT NULL AND key >= ? AND key < ? LIMIT ?

-- name: numbers_by_run
SELECT number FROM tasks WHERE run >= ? AND run < ? LIMIT ?

-- Those that tasks come after, and those that these come after, as far as they live.
-- name: needed_records
WITH RECURSIVE needed (id) AS (
    SELECT value FROM json_each(?1)
    UNION
    SELECT j.value
    FROM needed CROSS JOIN tasks AS t ON t.id = needed.id CROSS JOIN json_each(t."after") AS j
    WHERE t.ended_at IS NULL
)
SELECT r.* FROM needed CROSS JOIN records AS r ON r.id = needed.id WHERE r.ended_at IS NULL LIMIT ?2

-- name: endings
SELECT id, state, ended_at FROM tasks WHERE id IN (SELECT value FROM json_each(?)) AND ended_at IS NOT NULL

-- name: recent_attempts
SELECT a.host, t.kind, t.model, a.lane, a.number, t.queued_at, a.started_at, a.ended_at, a.verdict
FROM attempts AS a CROSS JOIN tasks AS t ON t.id = a.task
WHERE a.ended_at IS NOT NULL AND a.imported IS NULL
ORDER BY a.ended_at DESC LIMIT ?

-- ==== history

-- name: record_of_task
SELECT * FROM records WHERE id = ?

-- name: records_of_run
SELECT * FROM records WHERE run = ? ORDER BY number

-- name: records_of_ids
SELECT * FROM records WHERE id IN (SELECT value FROM json_each(?))

-- name: own_records_of_ids
SELECT * FROM records
WHERE id IN (SELECT value FROM json_each(?)) AND run NOT IN (SELECT run FROM imports) ORDER BY number

-- name: lately_live
SELECT count(*) FROM tasks WHERE ended_at IS NULL

-- name: lately_running_count
SELECT count(*) FROM tasks WHERE ended_at IS NULL AND state = 'running'

-- name: lately_running
SELECT id FROM tasks WHERE ended_at IS NULL AND state = 'running' ORDER BY number DESC LIMIT ?

-- name: lately_queued
SELECT id FROM tasks WHERE ended_at IS NULL AND state = 'queued' ORDER BY number LIMIT ?

-- name: lately_ended_count
SELECT count(*) FROM events WHERE number >= ? AND type = 'ended' AND task IS NOT NULL AND at >= ?

-- The same two where runs were imported of late.
-- name: lately_ended_count_here
SELECT count(*) FROM events AS e
WHERE e.number >= ? AND e.type = 'ended' AND e.task IS NOT NULL AND e.at >= ?
    AND NOT EXISTS (SELECT 1 FROM tasks AS t CROSS JOIN imports AS i ON i.run = t.run WHERE t.id = e.task)

-- name: lately_ended_here
SELECT e.task FROM events AS e
WHERE e.number >= ? AND e.type = 'ended' AND e.task IS NOT NULL AND e.at >= ?
    AND NOT EXISTS (SELECT 1 FROM tasks AS t CROSS JOIN imports AS i ON i.run = t.run WHERE t.id = e.task)
ORDER BY e.number DESC LIMIT ?

-- The first event of the first run that was imported since then.
-- name: first_imported_event
SELECT min((SELECT b.event FROM batches AS b
            WHERE b.first <= (SELECT t.number FROM tasks AS t WHERE t.run = i.run ORDER BY t.number LIMIT 1)
            ORDER BY b.first DESC LIMIT 1))
FROM imports AS i WHERE i.imported_at >= ?

-- name: lately_ended
SELECT task FROM events WHERE number >= ? AND type = 'ended' AND task IS NOT NULL AND at >= ? ORDER BY number DESC LIMIT ?

-- name: attempts_of_tasks
SELECT task, number, host, lane, started_at, work_class, ended_at, verdict, error, retry_at
FROM attempts
WHERE task IN (SELECT value FROM json_each(?))
    AND (ended_at IS NOT NULL OR NOT EXISTS (
        SELECT 1 FROM tasks AS t
        WHERE t.id = attempts.task AND t.attempts = attempts.number AND t.state = 'running' AND t.started_at IS NULL))
ORDER BY started_at, task, number

-- An attempt that has not ended is that of a running task; those are few and found through the live ones.
-- name: attempts_between
SELECT task, number, host, lane, started_at, work_class, ended_at, verdict, error, retry_at
FROM attempts
WHERE ended_at IS NOT NULL AND imported IS NULL AND ended_at >= ?1 AND started_at <= ?2
UNION ALL
SELECT a.task, a.number, a.host, a.lane, a.started_at, a.work_class, a.ended_at, a.verdict, a.error, a.retry_at
FROM tasks AS t CROSS JOIN attempts AS a ON a.task = t.id AND a.number = t.attempts
WHERE t.ended_at IS NULL AND t.state = 'running' AND a.ended_at IS NULL AND a.started_at <= ?2
ORDER BY started_at, task, number

-- name: imported_attempts
SELECT a.task, a.number, a.host, a.lane, a.started_at, a.work_class, a.ended_at, a.verdict, a.error, a.retry_at
FROM tasks AS t CROSS JOIN attempts AS a ON a.task = t.id
WHERE t.run = ? AND a.imported IS NOT NULL

-- The one in force when the time begins belongs to it.
-- name: routes_between
SELECT key, work_class, at, name
FROM routes AS r
WHERE key IN (SELECT value FROM json_each(?1)) AND at <= ?3
  AND at >= coalesce((SELECT max(at) FROM routes WHERE key = r.key AND at <= ?2), ?2)
ORDER BY at, rowid

-- name: moves_of_tasks
SELECT task, at, work_class, why
FROM moves WHERE task IN (SELECT value FROM json_each(?)) ORDER BY at, rowid

-- name: rests_of_tasks
SELECT task, began, revived, attempts FROM rests WHERE task IN (SELECT value FROM json_each(?)) ORDER BY began, task

-- name: priority_changes_of_tasks
SELECT task, at, was, priority
FROM priority_changes WHERE task IN (SELECT value FROM json_each(?)) ORDER BY at, rowid

-- name: stretches_between
SELECT work_class, at, reason, detail
FROM stretches AS s
WHERE work_class IN (SELECT value FROM json_each(?1)) AND at <= ?3
  AND at >= coalesce((SELECT max(at) FROM stretches WHERE work_class = s.work_class AND at <= ?2), ?2)
ORDER BY at, rowid

-- name: epochs_between
SELECT number, pid, machine, command, answers_only, started_at, seen_at, ended_at, plant, url, only_run
FROM epochs WHERE started_at <= ?2 AND (ended_at IS NULL OR ended_at >= ?1) ORDER BY number

-- Those in force when the time begins were told at the beginning of its dispatcher, or since.
-- name: conditions_between
SELECT number, at, type, task, attempt, host, data
FROM events
WHERE type IN ('host', 'lane', 'gate', 'all', 'Stall') AND at <= ?2
  AND at >= coalesce((SELECT max(started_at) FROM epochs WHERE started_at <= ?1), ?1)
ORDER BY at, number

-- name: costs_of_tasks
SELECT task, attempt, sum(data ->> 'usd')
FROM events
WHERE type = 'spent' AND task IN (SELECT value FROM json_each(?))
GROUP BY task, attempt

-- ==== exchange

-- name: page_of_run
SELECT * FROM full_records WHERE run = ? AND number > ? ORDER BY number LIMIT ?

-- name: events_of_run
SELECT e.number, e.at, e.type, e.task, e.attempt, e.host, e.data
FROM events AS e CROSS JOIN tasks AS t ON t.id = e.task
WHERE e.number > ? AND t.run = ? AND e.type <> 'submitted'
ORDER BY e.number LIMIT ?

-- name: first_event_of_run
SELECT event FROM batches
WHERE first <= (SELECT number FROM tasks WHERE run = ? ORDER BY number LIMIT 1) ORDER BY first DESC LIMIT 1

-- name: run_exists
SELECT 1 FROM tasks WHERE run = ? LIMIT 1

-- name: lowest_class
SELECT coalesce(min(lowest_class), 0) FROM imports

-- name: import_task
INSERT INTO tasks (id, run, kind, lane, priority, queued_at, "after", needs, host, model, timeout_s, deadline,
                   not_before, retries, key, on_crash, payload, trace, output, state, attempts, tries, host_faults,
                   retry_at, ran_on, started_at, ended_at, ended_event, error, value)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: import_attempt
INSERT INTO attempts (task, number, host, lane, started_at, work_class, ended_at, verdict, error, retry_at, imported)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)

-- name: add_import
INSERT INTO imports (run, imported_at, lowest_class, material) VALUES (?, ?, ?, ?)

-- name: import_of_run
SELECT imported_at, material FROM imports WHERE run = ?

-- name: add_foreign_task
INSERT OR REPLACE INTO foreign_tasks (id, run, state, record) VALUES (?, ?, ?, ?)

-- name: foreign_tasks
SELECT record FROM foreign_tasks WHERE run = ? AND id IN (SELECT value FROM json_each(?))

-- ==== prune

-- name: tasks_to_prune
SELECT number, id, state
FROM tasks
WHERE number > ?1 AND ended_at < ?2
  AND id NOT IN (SELECT d.value FROM tasks AS t, json_each(t."after") AS d
                 WHERE t.ended_at IS NULL AND t."after" IS NOT NULL)
ORDER BY number LIMIT ?3

-- name: drop_tasks
DELETE FROM tasks WHERE number IN (SELECT value FROM json_each(?))

-- name: drop_payloads
DELETE FROM payloads WHERE number IN (SELECT value FROM json_each(?))

-- name: drop_attempts
DELETE FROM attempts WHERE task IN (SELECT value FROM json_each(?))

-- name: drop_moves
DELETE FROM moves WHERE task IN (SELECT value FROM json_each(?))

-- name: drop_priority_changes
DELETE FROM priority_changes WHERE task IN (SELECT value FROM json_each(?))

-- name: drop_rests
DELETE FROM rests WHERE task IN (SELECT value FROM json_each(?))

-- name: oldest_kept
SELECT min(queued_at), max(number) FROM tasks

-- name: oldest_beyond
SELECT (SELECT min(queued_at) FROM tasks WHERE number > ?), (SELECT min(number) FROM tasks)

-- name: drop_events
DELETE FROM events
WHERE number BETWEEN ?1 AND ?2
  AND (CASE WHEN task IS NULL THEN at < ?3 ELSE task NOT IN (SELECT id FROM tasks) END)

-- name: first_event
SELECT coalesce(min(number), 1) FROM events

-- name: drop_routes
DELETE FROM routes WHERE at < (SELECT max(r.at) FROM routes AS r WHERE r.key = routes.key AND r.at <= ?)

-- name: drop_stretches
DELETE FROM stretches
WHERE at < (SELECT max(s.at) FROM stretches AS s WHERE s.work_class = stretches.work_class AND s.at <= ?)

-- name: drop_epochs
DELETE FROM epochs WHERE ended_at < ? AND number < (SELECT max(number) FROM epochs)

-- name: drop_batches
DELETE FROM batches WHERE first < (SELECT max(b.first) FROM batches AS b WHERE b.first <= ?)

-- name: drop_requests
DELETE FROM requests WHERE answered_at < ?

-- name: drop_spending
DELETE FROM spending WHERE day < ?

-- name: drop_imports
DELETE FROM imports WHERE run NOT IN (SELECT run FROM tasks)

-- name: drop_task_files
DELETE FROM task_files WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.run = task_files.run)

-- name: drop_foreign_tasks
DELETE FROM foreign_tasks WHERE run NOT IN (SELECT run FROM imports)

-- ==== copy

-- name: numbers_given
SELECT coalesce(max(CASE name WHEN 'tasks' THEN seq END), 0), coalesce(max(CASE name WHEN 'events' THEN seq END), 0),
       coalesce(max(CASE name WHEN 'requests' THEN seq END), 0), coalesce(max(CASE name WHEN 'epochs' THEN seq END), 0)
FROM sqlite_sequence

-- name: forget_numbers
DELETE FROM sqlite_sequence

-- name: give_numbers
INSERT INTO sqlite_sequence (name, seq) VALUES ('tasks', ?), ('events', ?), ('requests', ?), ('epochs', ?)
