-- Version 11. Log-ins of the board: what signs them, and those that were ended before their time.

CREATE TABLE secrets (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE ended_sessions (
    id         TEXT PRIMARY KEY,
    expires_at REAL NOT NULL
) WITHOUT ROWID;
