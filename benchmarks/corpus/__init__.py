"""A labelled corpus of generated runs: each with the one fault that was put into it, or with none.

A small event simulator of its own (`simulation`) runs many kinds of dispatchers (`dispatchers`) over generated
work; `recorder` writes down what happened, as Penstock would have recorded it or as another system's log tells
it. What the runs lost is known from the same work without the fault. Nothing here knows how faults are found:
only `score` asks.

    python -m benchmarks.corpus score [NAME…] [--seeds N] [--json]
    python -m benchmarks.corpus show NAME SEED
"""
