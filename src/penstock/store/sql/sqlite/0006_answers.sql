-- Version 6. A dispatcher that only answers requests starts nothing: to tasks nobody was there.

ALTER TABLE epochs ADD COLUMN answers_only INTEGER NOT NULL DEFAULT 0;

-- Those of older versions are known by what they told of the classes that waited.
UPDATE epochs SET answers_only = 1
FROM (SELECT DISTINCT at FROM stretches WHERE reason = 'dispatcher-down') AS told
WHERE told.at >= epochs.started_at AND told.at <= coalesce(epochs.ended_at, epochs.seen_at);
