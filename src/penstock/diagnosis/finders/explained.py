"""Each fault explained, for whoever looks at a timeline: how it shows there, what it is not, and what helps.

The pages of the findings say the same, and more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Explained(NamedTuple):
    sight: str  # on a timeline
    otherwise: str  # what looks like it and is none
    remedy: str


EXPLAINED: Mapping[str, Explained] = {
    "stalled-loop": Explained(
        sight=(
            "No bar begins anywhere while one long bar lasts; right at its end bars begin on several hosts at"
            ' once, and several others "end" in that same moment.'
        ),
        otherwise=("A pause of one host; a dispatcher with nothing to do."),
        remedy=(
            "Run blocking code beside the loop. Penstock runs async functions on a loop of their own, others "
            "in threads or processes, and its dispatcher's loop runs no user code at all; `isolation = "
            '"process"` of a `python` host moves a function off its loop as well.'
        ),
    ),
    "head-of-line-blocking": Explained(
        sight=(
            "A host has a hole in its row while tasks of its own are in line; the hole ends in the very "
            "moment in which a task starts on another, full host."
        ),
        otherwise=(
            "Order within one full host; queues that stand still with the loop that starts all tasks "
            "(stalled-loop)."
        ),
        remedy=(
            "A line per host. Penstock looks at every host's next task whenever anything changes, so nothing "
            "stands behind a task that is for another host."
        ),
    ),
    "leaked-slots": Explained(
        sight=(
            "The row of a host gets thinner after each failed bar and never recovers; or thicker than its "
            "slots."
        ),
        otherwise=(
            "Slots that were changed on purpose or tune themselves; a host that throttles (429); the end of "
            "the queue; a kind that never ran more at once and is left when the others are done "
            "(serial-starts)."
        ),
        remedy=(
            "Release a slot exactly once, however a task ends. In Penstock slots are the set of live "
            "attempts, never a counter: releasing twice changes nothing, and nothing can be forgotten."
        ),
    ),
    "serial-starts": Explained(
        sight=(
            "The bars of the family form a staircase: one begins where the one before ends, beside free "
            "slots."
        ),
        otherwise=(
            "A host whose slots are full. With one slot, one at a time is right. Of a log the slots must be "
            "known (`--config`, `--slots`), or the same host must have been seen to take more."
        ),
        remedy=(
            "Find what lets only one through: a thread per kind, a lock, a lane with `max_running = 1`, "
            "blocking code on a loop."
        ),
    ),
    "stuck-gate": Explained(
        sight=(
            "All waits of a lane have the colour of `gate:NAME`, from their beginning to the end of the run."
        ),
        otherwise=(
            "A gate that opens and closes; waits that are short against the run; a lane that really was too "
            "busy."
        ),
        remedy=(
            "`penstock check` tries every probe and shows its reading; then change `min`, `max` or "
            "`max_running`, or let a failing probe leave the gate open."
        ),
    ),
    "unbalanced-hosts": Explained(
        sight=("One host's row is dense to the end, another's is empty long before."),
        otherwise=("Hosts of which one is slower, where work goes to whoever is free."),
        remedy=(
            "Leave out `host` in the tasks and let both hosts serve the kind: whoever is free takes the next."
        ),
    ),
    "idle-slots": Explained(
        sight=(
            "After the end of a bar there is a gap before the next begins, again and again, while tasks are "
            "in line."
        ),
        otherwise=(
            "Waits for gates, pauses, dependencies, rates, hosts that were down; slots kept by a reserve; "
            "what head-of-line-blocking, serial-starts, stalled-loop, stuck-gate, unbalanced-hosts or "
            "leaked-slots name better."
        ),
        remedy=(
            "Start a task when a slot becomes free, as Penstock does; a larger `max_running` of the lane."
        ),
    ),
    "one-at-a-time-server": Explained(
        sight=("Bars that begin together end one by one, evenly spaced by the time of a single one."),
        otherwise=("A host that gains something from the second attempt."),
        remedy=(
            "Let the server take several calls (`OLLAMA_NUM_PARALLEL`, `--parallel` of llama.cpp, Max "
            "Concurrent Predictions of LM Studio), or set `slots = 1`: it costs nothing, and tasks wait in "
            "the queue, where priorities count and `why` explains."
        ),
    ),
    "contention": Explained(
        sight=("The bars of a host are long where many lie above each other, and short where few do."),
        otherwise=(
            "Durations that vary by themselves, or because the mix of kinds changed; a server that takes one "
            "call at a time (one-at-a-time-server)."
        ),
        remedy=(
            "`slots` at the knee; `slots = { auto = true, min = 1, max = 8 }` finds it while it works (how)."
        ),
    ),
    "wrong-slots": Explained(
        sight=(
            "Too many: bars get longer where they lie denser, and no more of them end per minute. Too few: "
            "the host is full, tasks are in line, and a sibling runs many more bars of the same length."
        ),
        otherwise=("A full host. Being full is what hosts are for."),
        remedy=(
            "`slots` as the finding says; `penstock whatif --sweep` shows the curve, `slots = { auto = true, "
            "… }` finds it while it works."
        ),
    ),
    "starvation": Explained(
        sight=(
            "A few bars begin only at the very end, after a long wait, while bars of later tasks came and "
            "went."
        ),
        otherwise=("First come, first served under load; a preference that has an end."),
        remedy=("`aging_s`, after which waiting counts as one level of priority; a `reserve` for the lane."),
    ),
    "priority-inversion": Explained(
        sight=("Coloured by priority, less urgent bars begin while more urgent ones still wait."),
        otherwise=(
            "Slots kept for another lane; the more urgent task's own lane at its limit; units (`vram_gb`) "
            "that it needed and did not get; a less urgent task that had aged."
        ),
        remedy=("Choose at the very start of a task. Penstock's priorities hold to that moment."),
    ),
    "host-down": Explained(
        sight=(
            "Waits have the colour of `host-down` while the host they are for runs nothing; or its row shows "
            "attempts that end in faults."
        ),
        otherwise=(
            "A blip; a host that was away while others took its work; attempts that fail quickly again and "
            "again on a host that counts as up, which is a retry-storm. The few trials of a breaker on a host"
            " that is told here are not told as a storm too."
        ),
        remedy=(
            "Bring the host back: `penstock check` tries every host and says what is wrong. A second host for"
            " the same kinds or model, or one with `fallback`, takes over meanwhile. Where attempts that were"
            " given up late were the cost, `breaker = { failures = 1 }` and a smaller `timeout_s`; where the "
            "first trial after the breaker's pause went well, a smaller `reset_s`."
        ),
    ),
    "retry-storm": Explained(
        sight=("Swarms of short failed bars, one task's after the other."),
        otherwise=("A few retries that succeed."),
        remedy=(
            "A breaker, which leaves a failing host alone for a while (`breaker = { failures = 3, reset_s = "
            "30 }` of a host), and a longer backoff (`[retry] base_s`). An error that trying again cannot "
            "help is `PermanentError`."
        ),
    ),
    "cold-starts": Explained(
        sight=(
            "The first bar of a host is much longer than the following ones; so is each bar after a pause, or"
            " after a change of model."
        ),
        otherwise=("A slow first task of another kind; a trend."),
        remedy=(
            "Keep the model loaded (`keep_alive` of Ollama), warm the host up before the run, or give each "
            "model a host of its own."
        ),
    ),
}
