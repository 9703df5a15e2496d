"""Beads as a queue: ready issues become tasks, are claimed, and are closed or blocked with what came of them.

issues.py      one issue, read from whatever version wrote it
readiness.py   which issues may be worked on, and what keeps the others (pure)
mapping.py     from an issue to a task (pure)
reports.py     from a task's end to the fields of its issue (pure)
lines.py       single fields changed in a file of JSON lines, every other byte as it was (pure)
tracker.py     what a queue of issues must do, and which way leads to this one
jsonl.py       straight on issues.jsonl, where there is no database
program.py     through `bd` or `br`, where there is one
claims.py      who works on what: a claim is known to be dead when its owner is
outputs.py     where a result may be saved
keeping.py     claims, kept in a thread of their own
told.py        what issues were told, and are told again when somebody wrote over it
watching.py    changes of the files that hold issues
loop.py        look, claim, submit, report; until stopped
"""
