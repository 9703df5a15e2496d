-- Version 4. The newest run of each task file: `--resume` goes on with it.

CREATE TABLE task_files (
    file text COLLATE "C" PRIMARY KEY,
    run  text COLLATE "C" NOT NULL
);
