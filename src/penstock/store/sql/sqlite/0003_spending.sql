-- Version 3. What attempts cost, added up: a dispatcher begins with what its day has spent so far.

-- Days are counted in UTC from 1970-01-01.
CREATE TABLE spending (
    day   INTEGER NOT NULL,
    host  TEXT NOT NULL,
    lane  TEXT NOT NULL,
    usd   REAL NOT NULL,
    calls INTEGER NOT NULL,
    PRIMARY KEY (day, host, lane)
) WITHOUT ROWID;
