-- Version 2. What each host failed with last, until an attempt or a check succeeds, and whether somebody has to fix it.

ALTER TABLE hosts ADD COLUMN error text COLLATE "C";
ALTER TABLE hosts ADD COLUMN needs_fix bigint NOT NULL DEFAULT 0;
