-- Version 9. Names that somebody holds for a while, across machines: who may create the containers of an agent.

CREATE TABLE leases (
    name       TEXT PRIMARY KEY,
    owner      TEXT NOT NULL,
    note       TEXT NOT NULL,
    since      REAL NOT NULL,
    expires_at REAL NOT NULL
) WITHOUT ROWID;
