-- Version 15. What each host failed with last, until an attempt or a check succeeds, and whether somebody has to fix it.

ALTER TABLE hosts ADD COLUMN error TEXT;
ALTER TABLE hosts ADD COLUMN needs_fix INTEGER NOT NULL DEFAULT 0;
