-- Version 3. A dispatcher that works one run alone: to tasks of others nobody is there.

ALTER TABLE epochs ADD COLUMN only_run text COLLATE "C" NOT NULL DEFAULT '';
