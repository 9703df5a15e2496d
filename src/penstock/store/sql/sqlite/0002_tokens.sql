-- Who may come in through `serve`. Of a secret only its digest is here.
CREATE TABLE tokens (
    name             TEXT PRIMARY KEY,
    id               TEXT NOT NULL UNIQUE,
    digest           TEXT NOT NULL,
    scopes           TEXT NOT NULL,
    lane             TEXT,
    priority         INTEGER,
    requests_per_min REAL,
    max_queued       INTEGER,
    created_at       REAL NOT NULL
) WITHOUT ROWID;
