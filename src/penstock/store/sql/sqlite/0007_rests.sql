-- Version 7. How many attempts a task had made when it came to rest: times alone cannot tell what came first.

ALTER TABLE rests ADD COLUMN attempts INTEGER;
