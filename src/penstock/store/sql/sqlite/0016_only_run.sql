-- Version 16. A dispatcher that works one run alone: to tasks of others nobody is there.

ALTER TABLE epochs ADD COLUMN only_run TEXT NOT NULL DEFAULT '';
