-- Version 14. Where the dispatcher of an epoch is reached by others, for calls that only it can answer.

ALTER TABLE epochs ADD COLUMN url TEXT NOT NULL DEFAULT '';
