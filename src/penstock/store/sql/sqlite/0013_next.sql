-- Version 13. What starts next is read from the head of the queue, however long it is.

CREATE INDEX tasks_next ON tasks (priority, queued_at) WHERE ended_at IS NULL;
