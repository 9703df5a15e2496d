-- Version 17. The newest run of each task file: `--resume` goes on with it.

CREATE TABLE task_files (
    file TEXT PRIMARY KEY,
    run  TEXT NOT NULL
) WITHOUT ROWID;
