-- Named queries: the names, parameters and columns of `sqlite/queries.sql`. Every parameter has its type where it is
-- first used. A list is an array; rows are one array per column. `head` is the row of numbers to go on from: whatever
-- names it waits until nobody else is adding (see `heads`).

-- ==== submit

-- name: counters
SELECT tasks, events FROM heads

-- Where numbers of tasks and events go on for what a submit adds: at those of `head`, which are known where they are
-- used. So a submit need not ask first.
-- name: from_here
SELECT 0::bigint, 0::bigint

-- name: known_keys
SELECT key, id FROM tasks WHERE key = ANY ($1::text[])

-- name: known_ids
SELECT id FROM tasks WHERE id = ANY ($1::text[])

-- name: add_tasks
INSERT INTO tasks (number, id, run, kind, lane, priority, queued_at, "after", needs, host, model, timeout_s, deadline,
                   not_before, retries, key, on_crash, payload, trace, output)
SELECT head.tasks + v.n, v.id, v.run, v.kind, v.lane, v.priority, v.queued_at, v."after", v.needs, v.host, v.model,
       v.timeout_s, v.deadline, v.not_before, v.retries, v.key, v.on_crash, v.payload, v.trace, v.output
FROM head, unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::float8[], $7::text[], $8::text[],
                  $9::text[], $10::text[], $11::float8[], $12::float8[], $13::float8[], $14::bigint[], $15::text[],
                  $16::text[], $17::text[], $18::text[], $19::text[])
     WITH ORDINALITY AS v (id, run, kind, lane, priority, queued_at, "after", needs, host, model, timeout_s, deadline,
                           not_before, retries, key, on_crash, payload, trace, output, n)

-- name: add_payload
INSERT INTO payloads (number, payload) SELECT * FROM unnest($1::bigint[], $2::text[])

-- name: add_batches
INSERT INTO batches (first, event) SELECT * FROM unnest($1::bigint[], $2::bigint[])

-- name: add_payload_here
INSERT INTO payloads (number, payload)
SELECT head.tasks + v.number, v.payload FROM head, unnest($1::bigint[], $2::text[]) AS v (number, payload)

-- name: add_batches_here
INSERT INTO batches (first, event)
SELECT head.tasks + v.first, head.events + v.event FROM head, unnest($1::bigint[], $2::bigint[]) AS v (first, event)

-- name: set_file_run
INSERT INTO task_files (file, run)
SELECT v.file, v.run FROM unnest($1::text[], $2::text[]) AS v (file, run)
ON CONFLICT (file) DO UPDATE SET run = excluded.run

-- name: add_submitted
INSERT INTO events (number, at, type, task, data)
SELECT head.events + v.n, v.at, 'submitted', v.task, '{"run":' || v.run || ',"count":' || v.count || ',"first":'
       || head.tasks + v.first || ',"last":' || head.tasks + v.last || '}'
FROM head, unnest($1::float8[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[])
     WITH ORDINALITY AS v (at, task, run, count, first, last, n)

-- name: add_events
INSERT INTO events (number, at, type, task, attempt, host, data)
SELECT head.events + v.n, v.at, v.type, v.task, v.attempt, v.host, v.data
FROM head, unnest($1::float8[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[])
     WITH ORDINALITY AS v (at, type, task, attempt, host, data, n)

-- ==== record

-- A task moves on only from where the dispatcher believed it to be: the row count tells whether all did.
-- name: move_live
UPDATE tasks
SET state = v.state,
    attempts = coalesce(v.attempts, tasks.attempts),
    tries = coalesce(v.tries, tasks.tries),
    host_faults = coalesce(v.host_faults, tasks.host_faults),
    retry_at = v.retry_at,
    ran_on = coalesce(v.ran_on, tasks.ran_on),
    started_at = coalesce(v.started_at, tasks.started_at)
FROM head, unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[],
                  $8::bigint[], $9::float8[], $10::text[], $11::float8[])
     AS v (id, was, least, most, state, attempts, tries, host_faults, retry_at, ran_on, started_at)
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
    ended_event = v.ended_event + head.events,
    is_unwell = CASE WHEN v.ended_at IS NOT NULL AND v.state <> 'done' THEN true END,
    error = v.error,
    value = v.value
FROM head, unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[],
                  $8::bigint[], $9::float8[], $10::text[], $11::float8[], $12::float8[], $13::bigint[], $14::text[],
                  $15::text[])
     AS v (id, was, least, most, state, attempts, tries, host_faults, retry_at, ran_on, started_at, ended_at,
           ended_event, error, value)
WHERE tasks.id = v.id AND tasks.state = v.was AND tasks.attempts BETWEEN v.least AND v.most

-- name: standing
SELECT id, state, attempts, ended_at FROM tasks WHERE id = ANY ($1::text[])

-- name: add_attempts
INSERT INTO attempts (task, number, host, lane, started_at, work_class, ended_at, verdict, error, retry_at)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::float8[], $6::bigint[], $7::float8[],
                     $8::text[], $9::text[], $10::float8[])
ON CONFLICT (task, number) DO UPDATE
SET host = excluded.host,
    lane = excluded.lane,
    started_at = excluded.started_at,
    work_class = excluded.work_class,
    ended_at = excluded.ended_at,
    verdict = excluded.verdict,
    error = excluded.error,
    retry_at = excluded.retry_at,
    imported = NULL

-- name: begin_attempts
UPDATE attempts SET started_at = v.started_at
FROM unnest($1::text[], $2::bigint[], $3::float8[]) AS v (task, number, started_at)
WHERE attempts.task = v.task AND attempts.number = v.number

-- name: begin_tasks
UPDATE tasks SET started_at = v.started_at
FROM unnest($1::text[], $2::bigint[], $3::float8[]) AS v (task, number, started_at)
WHERE tasks.id = v.task AND tasks.attempts = v.number

-- name: end_attempts
UPDATE attempts
SET ended_at = v.ended_at, verdict = v.verdict, error = v.error, retry_at = v.retry_at
FROM unnest($1::text[], $2::bigint[], $3::float8[], $4::text[], $5::text[], $6::float8[])
     AS v (task, number, ended_at, verdict, error, retry_at)
WHERE attempts.task = v.task AND attempts.number = v.number

-- name: count_live
SELECT count(*) FROM tasks WHERE id = ANY ($1::text[]) AND ended_at IS NULL

-- name: set_priorities
UPDATE tasks SET priority = v.priority
FROM unnest($1::text[], $2::bigint[]) AS v (id, priority)
WHERE tasks.id = v.id

-- name: add_priority_changes
INSERT INTO priority_changes (task, at, was, priority)
SELECT * FROM unnest($1::text[], $2::float8[], $3::bigint[], $4::bigint[])

-- name: count_ended
INSERT INTO tally (state, tasks) SELECT * FROM unnest($1::text[], $2::bigint[])
ON CONFLICT (state) DO UPDATE SET tasks = tally.tasks + excluded.tasks

-- name: add_route
INSERT INTO routes (key, at, work_class, name) SELECT * FROM unnest($1::text[], $2::float8[], $3::bigint[], $4::text[])

-- name: add_move
INSERT INTO moves (task, at, work_class, why) SELECT * FROM unnest($1::text[], $2::float8[], $3::bigint[], $4::text[])

-- name: add_rest
INSERT INTO rests (task, began, revived, attempts)
SELECT * FROM unnest($1::text[], $2::float8[], $3::float8[], $4::bigint[])

-- name: add_stretch
INSERT INTO stretches (work_class, at, reason, detail)
SELECT * FROM unnest($1::bigint[], $2::float8[], $3::text[], $4::text[])

-- Of several changes of one thing the last counts.
-- name: set_host
INSERT INTO hosts (host, state, slots, detail, changed_at, error, needs_fix)
SELECT DISTINCT ON (host) host, state, slots, detail, changed_at, error, needs_fix
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::float8[], $6::text[], $7::bigint[])
     WITH ORDINALITY AS v (host, state, slots, detail, changed_at, error, needs_fix, n)
ORDER BY host, n DESC
ON CONFLICT (host) DO UPDATE
SET state = excluded.state, slots = excluded.slots, detail = excluded.detail, changed_at = excluded.changed_at,
    error = excluded.error, needs_fix = excluded.needs_fix

-- name: set_lane
INSERT INTO lanes (lane, paused, changed_at)
SELECT DISTINCT ON (lane) lane, paused, changed_at
FROM unnest($1::text[], $2::bigint[], $3::float8[]) WITH ORDINALITY AS v (lane, paused, changed_at, n)
ORDER BY lane, n DESC
ON CONFLICT (lane) DO UPDATE SET paused = excluded.paused, changed_at = excluded.changed_at

-- name: set_gate
INSERT INTO gates (gate, open, detail, changed_at)
SELECT DISTINCT ON (gate) gate, open, detail, changed_at
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::float8[])
     WITH ORDINALITY AS v (gate, open, detail, changed_at, n)
ORDER BY gate, n DESC
ON CONFLICT (gate) DO UPDATE
SET open = excluded.open, detail = excluded.detail, changed_at = excluded.changed_at

-- name: add_spending
INSERT INTO spending (day, host, lane, usd, calls)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::float8[], $5::bigint[])
ON CONFLICT (day, host, lane) DO UPDATE
SET usd = spending.usd + excluded.usd, calls = spending.calls + excluded.calls

-- name: set_everything
INSERT INTO everything (one, paused, changed_at)
SELECT 1, paused, changed_at
FROM unnest($1::bigint[], $2::float8[]) WITH ORDINALITY AS v (paused, changed_at, n)
ORDER BY n DESC LIMIT 1
ON CONFLICT (one) DO UPDATE SET paused = excluded.paused, changed_at = excluded.changed_at

-- ==== ownership

-- With since when it is stopping. Nobody else takes that lease, so it holds as long as the epoch, whatever its time.
-- name: last_epoch
SELECT number, pid, machine, command, answers_only, started_at, seen_at, ended_at, plant, url, only_run,
    (SELECT since FROM leases WHERE name = 'stopping/' || number)
FROM epochs ORDER BY number DESC LIMIT 1

-- name: add_epoch
WITH next AS (UPDATE heads SET epoch = greatest(epoch, $11::bigint) + 1 RETURNING epoch)
INSERT INTO epochs (number, pid, machine, command, answers_only, started_at, seen_at, plant, url, only_run, config)
SELECT next.epoch, $1::bigint, $2::text, $3::text, $4::bigint, $5::float8, $6::float8, $7::text, $8::text, $9::text,
    $10::text
FROM next
RETURNING number

-- name: epoch_config
SELECT config FROM epochs WHERE number = $1::bigint

-- name: is_epoch
SELECT 1 FROM heads WHERE epoch = $1::bigint
    AND EXISTS (SELECT 1 FROM epochs WHERE number = $1::bigint AND ended_at IS NULL)

-- name: see_epoch
UPDATE epochs SET seen_at = greatest(seen_at, $1::float8) WHERE number = $2::bigint AND ended_at IS NULL

-- name: end_epoch
UPDATE epochs SET ended_at = greatest(seen_at, $1::float8) WHERE number = $2::bigint AND ended_at IS NULL

-- ==== requests

-- name: add_request
INSERT INTO requests (verb, args, asked_at) VALUES ($1::text, $2::text, $3::float8) RETURNING number

-- name: open_requests
SELECT number, verb, args FROM requests WHERE answered_at IS NULL ORDER BY number

-- name: answer_request
UPDATE requests SET answered_at = v.answered_at, ok = v.ok, detail = v.detail, data = v.data
FROM unnest($1::float8[], $2::bigint[], $3::text[], $4::text[], $5::bigint[])
     AS v (answered_at, ok, detail, data, number)
WHERE requests.number = v.number AND requests.answered_at IS NULL

-- name: request_answer
SELECT ok, detail, data FROM requests WHERE number = $1::bigint AND answered_at IS NOT NULL

-- ==== reading

-- name: ended_of_outputs
SELECT output, id FROM tasks WHERE output = ANY ($1::text[]) AND ended_at IS NOT NULL ORDER BY number

-- name: makers_of_outputs
SELECT output, id, key FROM tasks
WHERE output = ANY ($1::text[]) AND ended_at IS NULL AND key IS NOT NULL ORDER BY number

-- name: task
SELECT * FROM full_records WHERE id = $1::text

-- name: ids_between
SELECT id FROM tasks WHERE id >= $1::text AND id < $2::text ORDER BY id LIMIT 10

-- name: run_of_file
SELECT run FROM task_files WHERE file = $1::text

-- name: runs_backwards
SELECT number, run FROM tasks WHERE $1::bigint IS NULL OR number < $1::bigint ORDER BY number DESC LIMIT $2::bigint

-- name: first_of_run
SELECT min(number) FROM tasks WHERE run = $1::text

-- name: run_count
SELECT (SELECT count(*) FROM tasks WHERE run = $1::text),
       (SELECT count(*) FROM tasks WHERE run = $1::text AND ended_event IS NOT NULL),
       (SELECT queued_at FROM tasks WHERE number = (SELECT min(number) FROM tasks WHERE run = $1::text))

-- name: keys_between
SELECT key FROM tasks WHERE key IS NOT NULL AND key >= $1::text AND key < $2::text ORDER BY key LIMIT $3::bigint

-- A key that is the name, ends with it, or is of an issue that is called so. All keys are looked at, in their index.
-- name: keys_like
SELECT id, key FROM tasks
WHERE key IS NOT NULL AND (
    key = $1::text
    OR right(key, 1 + length($1::text)) = '/' || $1::text
    OR right(key, 6 + length($1::text)) = '/' || $1::text || '.json'
    OR left(key, 7 + length($1::text)) = 'beads:' || $1::text || ':'
)
ORDER BY number DESC LIMIT 1000

-- name: runs_between
-- From name to name by the index: a run may have a million tasks.
WITH RECURSIVE names (run) AS (
    SELECT min(run) FROM tasks WHERE run >= $1::text AND run < $2::text
    UNION ALL
    SELECT (SELECT min(t.run) FROM tasks AS t WHERE t.run > names.run AND t.run < $2::text)
    FROM names WHERE names.run IS NOT NULL
)
SELECT run FROM names WHERE run IS NOT NULL LIMIT 10

-- One that was decided and has not begun is none yet.
-- name: attempts_of_task
SELECT task, number, host, lane, started_at, work_class, ended_at, verdict, error, retry_at
FROM attempts
WHERE task = $1::text
    AND (ended_at IS NOT NULL OR NOT EXISTS (
        SELECT 1 FROM tasks AS t
        WHERE t.id = attempts.task AND t.attempts = attempts.number AND t.state = 'running' AND t.started_at IS NULL))
ORDER BY number

-- name: events_after
SELECT number, at, type, task, attempt, host, data FROM events
WHERE number > $1::bigint ORDER BY number LIMIT $2::bigint

-- name: events_begin
SELECT event FROM batches
WHERE first <= (SELECT number FROM tasks WHERE id = $1::text) ORDER BY first DESC LIMIT 1

-- name: events_of_task
SELECT number, at, type, task, attempt, host, data
FROM events WHERE number > $1::bigint AND task = $2::text ORDER BY number LIMIT $3::bigint

-- name: ended_in_run
SELECT t.ended_event AS event, r.*
FROM tasks AS t JOIN full_records AS r ON r.number = t.number
WHERE t.run = $1::text AND t.ended_event > $2::bigint
ORDER BY event

-- name: states_in_run
SELECT state, count(*) FROM tasks WHERE run = $1::text GROUP BY state

-- name: live_in_run
SELECT (SELECT count(*) FROM tasks WHERE run = $1::text)
     - (SELECT count(*) FROM tasks WHERE run = $1::text AND ended_event IS NOT NULL)

-- name: arrivals
SELECT r.*, convert_to((SELECT f.payload FROM full_records AS f WHERE f.number = r.number), 'UTF8')
FROM records AS r
WHERE r.number > $1::bigint AND r.ended_at IS NULL ORDER BY r.number LIMIT $2::bigint

-- The same, and whether any request is open; one row of nothing else where nothing arrived.
-- name: incoming
SELECT r.*, q.asked, convert_to((SELECT f.payload FROM full_records AS f WHERE f.number = r.number), 'UTF8')
FROM (SELECT EXISTS (SELECT 1 FROM requests WHERE answered_at IS NULL) AS asked) AS q
LEFT JOIN (SELECT * FROM records WHERE number > $1::bigint AND ended_at IS NULL ORDER BY number LIMIT $2::bigint) AS r
     ON true
ORDER BY r.number

-- name: live_beyond
SELECT number FROM tasks WHERE ended_at IS NULL ORDER BY number LIMIT 1 OFFSET $1::bigint

-- name: queued
SELECT number, id, queued_at,
       state = 'queued' AND attempts = 0 AND tries = 0 AND host_faults = 0 AND retry_at IS NULL AND "after" IS NULL
       AND not_before IS NULL AND deadline IS NULL AND on_crash <> 'cancel' AND lane <> ALL ($1::text[]),
       kind, lane, host, model, needs, priority, retries
FROM tasks
WHERE number > $2::bigint AND ended_at IS NULL ORDER BY number LIMIT $3::bigint

-- name: fetch
SELECT r.*, convert_to((SELECT f.payload FROM full_records AS f WHERE f.number = r.number), 'UTF8')
FROM records AS r
WHERE r.id = ANY ($1::text[]) ORDER BY r.number

-- name: states
SELECT id, state FROM tasks WHERE id = ANY ($1::text[])

-- name: tasks_numbered
SELECT number, id FROM tasks WHERE number = ANY ($1::bigint[])

-- name: foreign_states
SELECT id, state FROM foreign_tasks WHERE id = ANY ($1::text[])

-- name: runs_of
SELECT id, run FROM tasks WHERE id = ANY ($1::text[])

-- name: last_event
SELECT events FROM heads

-- ==== tokens

-- name: add_token
INSERT INTO tokens (name, id, digest, scopes, lane, priority, requests_per_min, max_queued, created_at)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::bigint, $7::float8, $8::bigint, $9::float8)
ON CONFLICT DO NOTHING

-- name: tokens
SELECT name, id, digest, scopes, lane, priority, requests_per_min, max_queued, created_at FROM tokens ORDER BY name

-- name: drop_token
DELETE FROM tokens WHERE name = $1::text

-- ==== sessions

-- name: keep_secret
INSERT INTO secrets (name, value) VALUES ($1::text, $2::bytea) ON CONFLICT (name) DO NOTHING

-- name: secret
SELECT value FROM secrets WHERE name = $1::text

-- name: forget_sessions
DELETE FROM ended_sessions WHERE expires_at <= $1::float8

-- name: end_session
INSERT INTO ended_sessions (id, expires_at) VALUES ($1::text, $2::float8)
ON CONFLICT (id) DO UPDATE SET expires_at = greatest(ended_sessions.expires_at, excluded.expires_at)

-- name: ended_sessions
SELECT id, expires_at FROM ended_sessions WHERE expires_at > $1::float8

-- ==== leases

-- name: lease
INSERT INTO leases (name, owner, note, since, expires_at)
VALUES ($1::text, $2::text, $3::text, $4::float8, $5::float8)
ON CONFLICT (name) DO UPDATE
SET owner = excluded.owner,
    note = excluded.note,
    since = CASE WHEN leases.owner = excluded.owner THEN leases.since ELSE excluded.since END,
    expires_at = excluded.expires_at
WHERE leases.owner = excluded.owner OR leases.expires_at <= $6::float8

-- name: renew_lease
UPDATE leases SET expires_at = $1::float8, note = $2::text WHERE name = $3::text AND owner = $4::text

-- name: end_lease
DELETE FROM leases WHERE name = $1::text AND owner = $2::text

-- name: lease_of
SELECT owner, note, since, expires_at FROM leases WHERE name = $1::text AND expires_at > $2::float8

-- name: leases
SELECT name, owner, note, since, expires_at FROM leases
WHERE name >= $1::text AND name < $2::text AND expires_at > $3::float8 ORDER BY name

-- name: drop_leases
-- One that is just being taken again is left alone: who waited for it would have all others wait.
DELETE FROM leases
WHERE name IN (SELECT name FROM leases WHERE expires_at < $1::float8 FOR UPDATE SKIP LOCKED)

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
SELECT day, host, lane, usd, calls FROM spending WHERE day = $1::bigint ORDER BY host, lane

-- ==== this moment

-- name: newest_numbers
SELECT events, tasks FROM heads

-- name: now_queued
SELECT kind, lane, host, model, needs, priority, ("after" IS NOT NULL OR not_before IS NOT NULL) AS tied, count(*)
FROM tasks
WHERE ended_at IS NULL AND state = 'queued' AND number > $1::bigint
GROUP BY kind, lane, host, model, needs, priority, tied

-- By how much that changed since an event, among tasks that were there: the first step since tells where one was.
-- name: now_queued_since
WITH touched AS MATERIALIZED (
    SELECT DISTINCT ON (task) task, (type = 'started' OR (type = 'ended' AND attempt IS NULL))::int AS was
    FROM events
    WHERE number > $1::bigint AND type IN ('started', 'requeued', 'ended', 'revived') AND task IS NOT NULL
    ORDER BY task, number
)
SELECT t.kind, t.lane, t.host, t.model, t.needs, t.priority,
       (t."after" IS NOT NULL OR t.not_before IS NOT NULL) AS tied,
       sum((t.state = 'queued')::int - touched.was)::bigint AS change
FROM touched JOIN tasks AS t ON t.id = touched.task
WHERE t.number <= $2::bigint
GROUP BY t.kind, t.lane, t.host, t.model, t.needs, t.priority, tied
HAVING sum((t.state = 'queued')::int - touched.was) <> 0

-- The same where priorities were changed too: a task was counted at the one that the first change tells.
-- name: now_queued_since_changes
WITH steps AS MATERIALIZED (
    SELECT DISTINCT ON (task) task, (type = 'started' OR (type = 'ended' AND attempt IS NULL)) AS was
    FROM events
    WHERE number > $1::bigint AND type IN ('started', 'requeued', 'ended', 'revived') AND task IS NOT NULL
    ORDER BY task, number
),
changes AS MATERIALIZED (
    SELECT DISTINCT ON (task) task, substring(data from '"from":([0-9]+)')::bigint AS was
    FROM events WHERE number > $1::bigint AND type = 'reprioritized' ORDER BY task, number
),
moved AS (
    SELECT t.kind, t.lane, t.host, t.model, t.needs, t.priority,
           (t."after" IS NOT NULL OR t.not_before IS NOT NULL) AS tied, (t.state = 'queued')::int AS queued,
           coalesce(steps.was, t.state = 'queued')::int AS was_queued,
           coalesce(changes.was, t.priority) AS was_priority
    FROM (SELECT task FROM steps UNION SELECT task FROM changes) AS touched
    JOIN tasks AS t ON t.id = touched.task
    LEFT JOIN steps ON steps.task = t.id
    LEFT JOIN changes ON changes.task = t.id
    WHERE t.number <= $2::bigint
)
SELECT kind, lane, host, model, needs, place, tied, sum(one)::bigint AS change
FROM (SELECT kind, lane, host, model, needs, tied, priority AS place, queued AS one FROM moved
      UNION ALL SELECT kind, lane, host, model, needs, tied, was_priority, -was_queued FROM moved) AS both_ways
GROUP BY kind, lane, host, model, needs, place, tied
HAVING sum(one) <> 0

-- name: now_running
SELECT id, attempts, ran_on, key, kind, lane, priority, run, started_at, needs
FROM tasks
WHERE ended_at IS NULL AND state = 'running'

-- name: now_started
SELECT id, attempts, ran_on, key, kind, lane, priority, run, started_at, needs
FROM tasks
WHERE state = 'running'
    AND id IN (SELECT task FROM events WHERE number > $1::bigint AND type IN ('started', 'delayed', 'began', 'reprioritized'))

-- name: now_still_running
SELECT id, attempts FROM tasks WHERE state = 'running' AND id = ANY ($1::text[])

-- What their payloads call them: a text or a number. One with a zero character cannot be looked into.
-- name: labels
SELECT id, label ->> 'id'
FROM (SELECT id, CASE WHEN position('\u0000' IN payload) = 0 THEN payload::json END AS label
      FROM full_records WHERE id = ANY ($1::text[])) AS named
WHERE json_typeof(label) = 'object' AND json_typeof(label -> 'id') IN ('string', 'number')

-- name: now_held
SELECT kind, lane, host, model, needs, sum(tied::int)::bigint, sum((NOT tied)::int)::bigint
FROM (SELECT kind, lane, host, model, needs,
             "after" IS NOT NULL AND EXISTS (
                 SELECT 1 FROM json_array_elements_text(q."after"::json) AS d JOIN tasks AS t ON t.id = d
                 WHERE t.ended_at IS NULL
             ) AS tied,
             greatest(coalesce(q.retry_at, 0), coalesce(q.not_before, 0)) > $1::float8 AS early
      FROM tasks AS q
      WHERE ended_at IS NULL AND state = 'queued'
        AND ("after" IS NOT NULL OR not_before IS NOT NULL OR retry_at IS NOT NULL)) AS held
WHERE tied OR early
GROUP BY kind, lane, host, model, needs

-- name: now_ended
SELECT floor(at / 60)::bigint AS minute, substring(data from '"state":"([a-z]+)"') AS state, count(*)
FROM events
WHERE number > $1::bigint AND type = 'ended' AND at >= $2::float8
GROUP BY minute, state

-- The same where runs were imported of late: what ended elsewhere is not this plant's.
-- name: now_ended_here
SELECT floor(e.at / 60)::bigint AS minute, substring(e.data from '"state":"([a-z]+)"') AS state, count(*)
FROM events AS e
WHERE e.number > $1::bigint AND e.type = 'ended' AND e.at >= $2::float8
    AND NOT EXISTS (SELECT 1 FROM tasks AS t JOIN imports AS i ON i.run = t.run WHERE t.id = e.task)
GROUP BY minute, state

-- name: events_since
SELECT count(*), coalesce(max((type = 'requeued')::int), 0), coalesce(max((type = 'reprioritized')::int), 0)
FROM events WHERE number > $1::bigint

-- name: event_at
SELECT at FROM events WHERE number >= $1::bigint ORDER BY number LIMIT 1

-- name: now_waits
SELECT k.key, s.reason, s.detail, s.at
FROM unnest($1::text[]) AS k (key)
CROSS JOIN LATERAL (SELECT o.work_class FROM routes AS o WHERE o.key = k.key ORDER BY o.at DESC, o.row DESC LIMIT 1) AS r
LEFT JOIN LATERAL (
    SELECT o.reason, o.detail, o.at FROM stretches AS o
    WHERE o.work_class = r.work_class ORDER BY o.at DESC, o.row DESC LIMIT 1
) AS s ON true

-- name: now_conditions
SELECT 'lane', lane, changed_at FROM lanes
UNION ALL SELECT 'gate', gate, changed_at FROM gates
UNION ALL SELECT 'all', '', changed_at FROM everything

-- ==== the queue of now

-- name: running_records
SELECT * FROM records WHERE ended_at IS NULL AND state = 'running' ORDER BY number

-- name: queued_keys
SELECT lane, queued_at + priority * $1::float8 AS place, number
FROM tasks
WHERE ended_at IS NULL AND state = 'queued' AND queued_at + priority * $1::float8 <= $2::float8

-- name: records_of_numbers
SELECT * FROM records WHERE number = ANY ($1::bigint[])

-- name: full_records_of_numbers
SELECT * FROM full_records WHERE number = ANY ($1::bigint[])

-- The least and the largest number in use.
-- name: bounds
SELECT coalesce((SELECT min(number) FROM tasks), 1), coalesce((SELECT max(number) FROM tasks), 0)

-- name: place_of_task
SELECT priority, queued_at FROM tasks WHERE number = $1::bigint

-- name: numbers_by_id
SELECT number FROM tasks WHERE id >= $1::text AND id < $2::text LIMIT $3::bigint

-- name: numbers_by_key
SELECT number FROM tasks WHERE key IS NOT NULL AND key >= $1::text AND key < $2::text LIMIT $3::bigint

-- name: numbers_by_run
SELECT number FROM tasks WHERE run >= $1::text AND run < $2::text LIMIT $3::bigint

-- Those that tasks come after, and those that these come after, as far as they live.
-- name: needed_records
WITH RECURSIVE needed (id) AS (
    SELECT unnest($1::text[]) COLLATE "C"
    UNION
    SELECT j.value COLLATE "C"
    FROM needed JOIN tasks AS t ON t.id = needed.id
    CROSS JOIN LATERAL json_array_elements_text(t."after"::json) AS j (value)
    WHERE t.ended_at IS NULL
)
SELECT r.* FROM needed JOIN records AS r ON r.id = needed.id WHERE r.ended_at IS NULL LIMIT $2::bigint

-- name: endings
SELECT id, state, ended_at FROM tasks WHERE id = ANY ($1::text[]) AND ended_at IS NOT NULL

-- name: recent_attempts
SELECT a.host, t.kind, t.model, a.lane, a.number, t.queued_at, a.started_at, a.ended_at, a.verdict
FROM attempts AS a JOIN tasks AS t ON t.id = a.task
WHERE a.ended_at IS NOT NULL AND a.imported IS NULL
ORDER BY a.ended_at DESC LIMIT $1::bigint

-- ==== history

-- name: record_of_task
SELECT * FROM records WHERE id = $1::text

-- name: records_of_run
SELECT * FROM records WHERE run = $1::text ORDER BY number

-- name: records_of_ids
SELECT * FROM records WHERE id = ANY ($1::text[])

-- name: own_records_of_ids
SELECT * FROM records
WHERE id = ANY ($1::text[]) AND run NOT IN (SELECT run FROM imports) ORDER BY number

-- name: lately_live
SELECT count(*) FROM tasks WHERE ended_at IS NULL

-- name: lately_running_count
SELECT count(*) FROM tasks WHERE ended_at IS NULL AND state = 'running'

-- name: lately_running
SELECT id FROM tasks WHERE ended_at IS NULL AND state = 'running' ORDER BY number DESC LIMIT $1::bigint

-- name: lately_queued
SELECT id FROM tasks WHERE ended_at IS NULL AND state = 'queued' ORDER BY number LIMIT $1::bigint

-- name: lately_ended_count
SELECT count(*) FROM events
WHERE number >= $1::bigint AND type = 'ended' AND task IS NOT NULL AND at >= $2::float8

-- The same two where runs were imported of late.
-- name: lately_ended_count_here
SELECT count(*) FROM events AS e
WHERE e.number >= $1::bigint AND e.type = 'ended' AND e.task IS NOT NULL AND e.at >= $2::float8
    AND NOT EXISTS (SELECT 1 FROM tasks AS t JOIN imports AS i ON i.run = t.run WHERE t.id = e.task)

-- name: lately_ended_here
SELECT e.task FROM events AS e
WHERE e.number >= $1::bigint AND e.type = 'ended' AND e.task IS NOT NULL AND e.at >= $2::float8
    AND NOT EXISTS (SELECT 1 FROM tasks AS t JOIN imports AS i ON i.run = t.run WHERE t.id = e.task)
ORDER BY e.number DESC LIMIT $3::bigint

-- The first event of the first run that was imported since then.
-- name: first_imported_event
SELECT min((SELECT b.event FROM batches AS b
            WHERE b.first <= (SELECT t.number FROM tasks AS t WHERE t.run = i.run ORDER BY t.number LIMIT 1)
            ORDER BY b.first DESC LIMIT 1))
FROM imports AS i WHERE i.imported_at >= $1::float8

-- name: lately_ended
SELECT task FROM events
WHERE number >= $1::bigint AND type = 'ended' AND task IS NOT NULL AND at >= $2::float8
ORDER BY number DESC LIMIT $3::bigint

-- name: attempts_of_tasks
SELECT task, number, host, lane, started_at, work_class, ended_at, verdict, error, retry_at
FROM attempts
WHERE task = ANY ($1::text[])
    AND (ended_at IS NOT NULL OR NOT EXISTS (
        SELECT 1 FROM tasks AS t
        WHERE t.id = attempts.task AND t.attempts = attempts.number AND t.state = 'running' AND t.started_at IS NULL))
ORDER BY started_at, task, number

-- An attempt that has not ended is that of a running task; those are few and found through the live ones.
-- name: attempts_between
SELECT task, number, host, lane, started_at, work_class, ended_at, verdict, error, retry_at
FROM attempts
WHERE ended_at IS NOT NULL AND imported IS NULL AND ended_at >= $1::float8 AND started_at <= $2::float8
UNION ALL
SELECT a.task, a.number, a.host, a.lane, a.started_at, a.work_class, a.ended_at, a.verdict, a.error, a.retry_at
FROM tasks AS t JOIN attempts AS a ON a.task = t.id AND a.number = t.attempts
WHERE t.ended_at IS NULL AND t.state = 'running' AND a.ended_at IS NULL AND a.started_at <= $2::float8
ORDER BY started_at, task, number

-- name: imported_attempts
SELECT a.task, a.number, a.host, a.lane, a.started_at, a.work_class, a.ended_at, a.verdict, a.error, a.retry_at
FROM tasks AS t JOIN attempts AS a ON a.task = t.id
WHERE t.run = $1::text AND a.imported IS NOT NULL

-- The one in force when the time begins belongs to it.
-- name: routes_between
SELECT key, work_class, at, name
FROM routes AS r
WHERE key = ANY ($1::text[]) AND at <= $3::float8
  AND at >= coalesce((SELECT max(o.at) FROM routes AS o WHERE o.key = r.key AND o.at <= $2::float8), $2::float8)
ORDER BY at, row

-- name: moves_of_tasks
SELECT task, at, work_class, why
FROM moves WHERE task = ANY ($1::text[]) ORDER BY at, row

-- name: rests_of_tasks
SELECT task, began, revived, attempts FROM rests WHERE task = ANY ($1::text[]) ORDER BY began, task

-- name: priority_changes_of_tasks
SELECT task, at, was, priority
FROM priority_changes WHERE task = ANY ($1::text[]) ORDER BY at, row

-- name: stretches_between
SELECT work_class, at, reason, detail
FROM stretches AS s
WHERE work_class = ANY ($1::bigint[]) AND at <= $3::float8
  AND at >= coalesce(
      (SELECT max(o.at) FROM stretches AS o WHERE o.work_class = s.work_class AND o.at <= $2::float8), $2::float8)
ORDER BY at, row

-- name: epochs_between
SELECT number, pid, machine, command, answers_only, started_at, seen_at, ended_at, plant, url, only_run
FROM epochs WHERE started_at <= $2::float8 AND (ended_at IS NULL OR ended_at >= $1::float8) ORDER BY number

-- Those in force when the time begins were told at the beginning of its dispatcher, or since.
-- name: conditions_between
SELECT number, at, type, task, attempt, host, data
FROM events
WHERE type IN ('host', 'lane', 'gate', 'all', 'Stall') AND at <= $2::float8
  AND at >= coalesce((SELECT max(started_at) FROM epochs WHERE started_at <= $1::float8), $1::float8)
ORDER BY at, number

-- name: costs_of_tasks
SELECT task, attempt, sum(substring(data from '"usd":([-+.0-9eE]+)')::float8)
FROM events
WHERE type = 'spent' AND task = ANY ($1::text[])
GROUP BY task, attempt

-- ==== exchange

-- name: page_of_run
SELECT * FROM full_records WHERE run = $1::text AND number > $2::bigint ORDER BY number LIMIT $3::bigint

-- name: events_of_run
SELECT e.number, e.at, e.type, e.task, e.attempt, e.host, e.data
FROM events AS e JOIN tasks AS t ON t.id = e.task
WHERE e.number > $1::bigint AND t.run = $2::text AND e.type <> 'submitted'
ORDER BY e.number LIMIT $3::bigint

-- name: first_event_of_run
SELECT event FROM batches
WHERE first <= (SELECT number FROM tasks WHERE run = $1::text ORDER BY number LIMIT 1) ORDER BY first DESC LIMIT 1

-- name: run_exists
SELECT 1 FROM tasks WHERE run = $1::text LIMIT 1

-- name: lowest_class
SELECT coalesce(min(lowest_class), 0) FROM imports

-- name: import_task
INSERT INTO tasks (number, id, run, kind, lane, priority, queued_at, "after", needs, host, model, timeout_s, deadline,
                   not_before, retries, key, on_crash, payload, trace, output, state, attempts, tries, host_faults,
                   retry_at, ran_on, started_at, ended_at, ended_event, error, value, is_unwell)
SELECT head.tasks + v.n, v.id, v.run, v.kind, v.lane, v.priority, v.queued_at, v."after", v.needs, v.host, v.model,
       v.timeout_s, v.deadline, v.not_before, v.retries, v.key, v.on_crash, v.payload, v.trace, v.output, v.state,
       v.attempts, v.tries, v.host_faults, v.retry_at, v.ran_on, v.started_at, v.ended_at, v.ended_event, v.error,
       v.value, CASE WHEN v.ended_at IS NOT NULL AND v.state <> 'done' THEN true END
FROM head, unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::float8[], $7::text[], $8::text[],
                  $9::text[], $10::text[], $11::float8[], $12::float8[], $13::float8[], $14::bigint[], $15::text[],
                  $16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::bigint[], $22::bigint[],
                  $23::bigint[], $24::float8[], $25::text[], $26::float8[], $27::float8[], $28::bigint[], $29::text[],
                  $30::text[])
     WITH ORDINALITY AS v (id, run, kind, lane, priority, queued_at, "after", needs, host, model, timeout_s, deadline,
                           not_before, retries, key, on_crash, payload, trace, output, state, attempts, tries,
                           host_faults, retry_at, ran_on, started_at, ended_at, ended_event, error, value, n)

-- name: import_attempt
INSERT INTO attempts (task, number, host, lane, started_at, work_class, ended_at, verdict, error, retry_at, imported)
SELECT v.*, 1 FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::float8[], $6::bigint[], $7::float8[],
                          $8::text[], $9::text[], $10::float8[]) AS v

-- name: add_import
INSERT INTO imports (run, imported_at, lowest_class, material)
SELECT * FROM unnest($1::text[], $2::float8[], $3::bigint[], $4::text[])

-- name: import_of_run
SELECT imported_at, material FROM imports WHERE run = $1::text

-- name: add_foreign_task
INSERT INTO foreign_tasks (id, run, state, record)
SELECT DISTINCT ON (id, run) id, run, state, record
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS v (id, run, state, record, n)
ORDER BY id, run, n DESC
ON CONFLICT (id, run) DO UPDATE SET state = excluded.state, record = excluded.record

-- name: foreign_tasks
SELECT record FROM foreign_tasks WHERE run = $1::text AND id = ANY ($2::text[])

-- ==== prune

-- What live tasks come after goes through an array: of how many that may be the server believes little, and so looks
-- them up in a hash. It would believe in too many to fit its memory, and go through all of them for every task.
-- name: tasks_to_prune
SELECT number, id, state
FROM tasks AS o
WHERE number > $1::bigint AND ended_at < $2::float8
  AND id NOT IN (SELECT needed.id
                 FROM unnest(ARRAY(
                     SELECT d.value
                     FROM tasks AS t CROSS JOIN LATERAL json_array_elements_text(t."after"::json) AS d (value)
                     WHERE t.ended_at IS NULL AND t."after" IS NOT NULL)) AS needed (id))
ORDER BY number LIMIT $3::bigint

-- name: drop_tasks
DELETE FROM tasks WHERE number = ANY ($1::bigint[])

-- name: drop_payloads
DELETE FROM payloads WHERE number = ANY ($1::bigint[])

-- name: drop_attempts
DELETE FROM attempts WHERE task = ANY ($1::text[])

-- name: drop_moves
DELETE FROM moves WHERE task = ANY ($1::text[])

-- name: drop_priority_changes
DELETE FROM priority_changes WHERE task = ANY ($1::text[])

-- name: drop_rests
DELETE FROM rests WHERE task = ANY ($1::text[])

-- name: oldest_kept
SELECT min(queued_at), max(number) FROM tasks

-- name: oldest_beyond
SELECT (SELECT min(queued_at) FROM tasks WHERE number > $1::bigint), (SELECT min(number) FROM tasks)

-- name: drop_events
DELETE FROM events AS e
WHERE e.number BETWEEN $1::bigint AND $2::bigint
  AND (CASE WHEN e.task IS NULL THEN e.at < $3::float8
            ELSE NOT EXISTS (SELECT 1 FROM tasks AS t WHERE t.id = e.task) END)

-- name: first_event
SELECT coalesce(min(number), 1) FROM events

-- name: drop_routes
DELETE FROM routes WHERE at < (SELECT max(r.at) FROM routes AS r WHERE r.key = routes.key AND r.at <= $1::float8)

-- name: drop_stretches
DELETE FROM stretches
WHERE at < (SELECT max(s.at) FROM stretches AS s WHERE s.work_class = stretches.work_class AND s.at <= $1::float8)

-- name: drop_epochs
DELETE FROM epochs WHERE ended_at < $1::float8 AND number < (SELECT max(number) FROM epochs)

-- name: drop_batches
DELETE FROM batches WHERE first < (SELECT max(b.first) FROM batches AS b WHERE b.first <= $1::bigint)

-- name: drop_requests
DELETE FROM requests WHERE answered_at < $1::float8

-- name: drop_spending
DELETE FROM spending WHERE day < $1::bigint

-- name: drop_imports
DELETE FROM imports WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.run = imports.run)

-- name: drop_task_files
DELETE FROM task_files WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.run = task_files.run)

-- name: drop_foreign_tasks
DELETE FROM foreign_tasks WHERE run NOT IN (SELECT run FROM imports)

-- ==== copy

-- name: numbers_given
SELECT tasks, events, (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM requests_number_seq), epoch FROM heads

-- name: give_numbers
WITH next AS (UPDATE heads SET tasks = $1::bigint, events = $2::bigint, epoch = $4::bigint RETURNING 1)
SELECT setval('requests_number_seq', greatest($3::bigint, 1), $3::bigint > 0) FROM next

-- name: be_patient
SELECT set_config('idle_in_transaction_session_timeout', '0', true)

-- The order in which rows were written goes on behind the last that came.
-- name: go_on_behind
SELECT setval('routes_row_seq', (SELECT coalesce(max(row), 0) + 1 FROM routes), false),
       setval('moves_row_seq', (SELECT coalesce(max(row), 0) + 1 FROM moves), false),
       setval('rests_row_seq', (SELECT coalesce(max(row), 0) + 1 FROM rests), false),
       setval('stretches_row_seq', (SELECT coalesce(max(row), 0) + 1 FROM stretches), false),
       setval('priority_changes_row_seq', (SELECT coalesce(max(row), 0) + 1 FROM priority_changes), false)

-- ==== what only this database needs

-- name: head
UPDATE heads SET tasks = tasks + $1::bigint, events = events + $2::bigint
RETURNING tasks - $1::bigint AS tasks, events - $2::bigint AS events, epoch

-- From here on nobody else adds tasks or events, or begins an epoch.
-- name: lock_heads
SELECT FROM heads FOR UPDATE

-- name: move_mark
UPDATE marks SET mark = mark + 1, at = now() WHERE writer = $1::text AND mark = $2::bigint RETURNING 1

-- name: add_mark
INSERT INTO marks (writer, mark) VALUES ($1::text, $2::bigint)
ON CONFLICT (writer) DO UPDATE SET mark = excluded.mark, at = now()

-- name: mark
SELECT mark FROM marks WHERE writer = $1::text

-- A commit that has not come by now will not: its writer's mark is not where it must be any more.
-- name: leave_mark
UPDATE marks SET mark = mark + 1000000 WHERE writer = $1::text AND mark = $2::bigint

-- name: drop_marks
DELETE FROM marks WHERE writer = $1::text OR at < now() - interval '30 days'

-- name: clock
SELECT extract(epoch FROM clock_timestamp())::float8

-- name: try_lock
SELECT pg_try_advisory_lock($1::bigint)

-- Who holds the dispatcher's lock: process of the server, how long it has been silent, how long it may be, which
-- process of which machine it is, and whether it is there without the lock: the server began anew since, and all locks
-- were lost (silence is counted from there), or the one connection was cut and others of the same store were not.
-- name: leader
SELECT (SELECT pid FROM pg_locks
        WHERE locktype = 'advisory' AND granted AND objsubid = 1
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND (classid::bigint << 32) + objid::bigint = $1::bigint
        LIMIT 1),
       extract(epoch FROM clock_timestamp())::float8 - greatest(beat_at, CASE WHEN beat_at > 0 THEN began END), lease_s,
       process, beat_at > 0 AND (beat_at < began OR EXISTS (
           SELECT 1 FROM pg_stat_activity
           WHERE datname = current_database() AND application_name = split_part(process, ' ', 1)))
FROM leader, (SELECT extract(epoch FROM pg_postmaster_start_time())::float8 AS began) AS server

-- name: beat
UPDATE leader SET beat_at = extract(epoch FROM clock_timestamp())::float8, lease_s = $1::float8, process = $2::text

-- name: fall_silent
UPDATE leader SET beat_at = 0, process = '' WHERE process = $1::text

-- name: head_epoch
SELECT epoch FROM heads

-- All connections of a store, which are known by its tag.
-- name: end_connections
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = $1::text AND pid <> pg_backend_pid()

-- name: end_connection
SELECT pg_terminate_backend($1::int)

-- name: notify
SELECT pg_notify($1::text, $2::text)

-- Whatever somebody may wait for changes one of these.
-- name: news
SELECT tasks, events, (SELECT max(number) FROM requests), (SELECT count(*) FROM requests WHERE answered_at IS NULL)
FROM heads

-- ==== opening

-- name: look
SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), pg_is_in_recovery(),
       to_regclass($1::text) IS NOT NULL, to_regnamespace($2::text) IS NOT NULL

-- name: lock_schema
SELECT pg_advisory_xact_lock(hashtextextended('penstock ' || $1::text, 0))

-- name: make_migrations
CREATE TABLE IF NOT EXISTS migrations (penstock integer PRIMARY KEY, made_at timestamptz NOT NULL DEFAULT now())

-- name: version
SELECT coalesce(max(penstock), 0) FROM migrations

-- name: add_version
INSERT INTO migrations (penstock) VALUES ($1::int)
