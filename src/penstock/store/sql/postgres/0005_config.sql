-- Version 5. With what config a dispatcher runs: names of keys and digests of their values, for those who compare.

ALTER TABLE epochs ADD COLUMN config text COLLATE "C";
