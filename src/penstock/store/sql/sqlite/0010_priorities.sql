-- Version 10. A task's priority may be changed while it lives; what it was before explains its waits.

CREATE TABLE priority_changes (
    task     TEXT NOT NULL,
    at       REAL NOT NULL,
    was      INTEGER NOT NULL,
    priority INTEGER NOT NULL
);
CREATE INDEX priority_changes_task ON priority_changes (task, at);
