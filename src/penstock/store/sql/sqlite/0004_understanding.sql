-- Version 4. What explains a run beyond its tasks: the plant it was run with, conditions over time, costs.

ALTER TABLE epochs ADD COLUMN plant TEXT;

-- Few events are of these types; the others touch neither index.
CREATE INDEX events_conditions ON events (at) WHERE type IN ('host', 'lane', 'gate', 'all', 'Stall');
CREATE INDEX events_spent ON events (task) WHERE type = 'spent';
