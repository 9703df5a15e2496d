-- Version 12. Tasks that ended otherwise than done are few, and what people look for.

-- By `ended_at` first: while a task lives, its changes of state need not be looked at further.
CREATE INDEX tasks_unwell ON tasks (number) WHERE ended_at IS NOT NULL AND state <> 'done';
