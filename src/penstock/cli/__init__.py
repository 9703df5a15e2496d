"""The command line: parse → client → render. No logic of its own.

app.py          the commands, loaded when they are used; what an error looks like outside
session.py      the config and the client of one command; signals
submit.py       submit
queue.py        tasks, show, cancel, retry, pause, resume
exchange.py     export, import
work.py         run, work
status.py       status, why
following.py    a run while it is worked on: until it has ended or is interrupted
tally.py progress.py results.py summary.py
                the run counted, shown, handed out and summed up
council.py council_ask.py council_past.py council_ingest.py
                one question, many members: asking, what was asked, documents
council_views.py council_live.py council_text.py
                a question on a terminal, in a pipe, as JSON
logs.py         the lines that `work` writes
details.py      all about one task
render.py files.py
                text, tables, JSON; files that are there whole or not at all
"""
