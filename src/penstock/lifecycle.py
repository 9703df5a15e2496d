"""The table of states: every step a task can take, and nothing else may move one.

The scheduler asks `step()` before it decides, the store writes what was decided; both read this table,
and the diagram in the docs is drawn from it.
"""

from __future__ import annotations

from penstock.errors import IllegalStep
from penstock.model import State

ENDED = frozenset({State.DONE, State.FAILED, State.CANCELLED, State.BLOCKED})
LIVE = frozenset({State.QUEUED, State.RUNNING})
UNWELL = (State.FAILED, State.CANCELLED, State.BLOCKED)  # not done; counted apart, each under its name

# (from, step) -> to
STEPS: dict[tuple[State, str], State] = {
    (State.QUEUED, "start"): State.RUNNING,
    (State.QUEUED, "cancel"): State.CANCELLED,
    (State.QUEUED, "expire"): State.FAILED,  # its deadline passed
    (State.QUEUED, "dependency-failed"): State.FAILED,
    (State.QUEUED, "dependency-cancelled"): State.CANCELLED,
    (State.QUEUED, "dependency-blocked"): State.BLOCKED,
    (State.RUNNING, "finish"): State.DONE,
    (State.RUNNING, "fail"): State.FAILED,
    (State.RUNNING, "requeue"): State.QUEUED,  # another try, or put back
    (State.RUNNING, "cancel"): State.CANCELLED,
    (State.RUNNING, "block"): State.BLOCKED,  # the dispatcher died and on_crash = "block", or on_stop says so
    (State.FAILED, "retry"): State.QUEUED,
    (State.CANCELLED, "retry"): State.QUEUED,
    (State.BLOCKED, "retry"): State.QUEUED,
}


def step(state: State, name: str) -> State:
    """The state that `name` leads to from `state`."""
    try:
        return STEPS[state, name]
    except KeyError:
        raise IllegalStep(f"a {state} task cannot {name}") from None
