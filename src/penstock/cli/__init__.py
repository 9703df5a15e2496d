"""The command line: parse → client → render. No logic of its own.

app.py          the commands, loaded when they are used; what an error looks like outside
session.py      the config and the client of one command; signals
queue.py        submit, tasks, show, cancel, retry, pause, resume, export, import
work.py         run, work
status.py       status, why
following.py    a run while it is worked on
progress.py     what `run` shows of it; tally.py counts it, summary.py ends it
logs.py         the lines that `work` writes
render.py       text, tables, JSON
"""
