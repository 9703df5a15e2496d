"""What tasks that have not run would cost and how long each would take: by those like them, else by the price list.

Nothing is made up. Where tasks of the same kind and model have ended in the store, they cost as much as those
did: another model's cost says nothing. Else a single call of a model with a price costs at most its prompt and all
the tokens it may answer with; anything else is not known.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import msgspec

from penstock.config import Config
from penstock.diagnosis.history import History
from penstock.model import Host, State, Task, Verdict

BYTES_PER_TOKEN = 4
PAST, PRICES = "past", "prices"
_CALLS = ("openai", "local", "simulated")  # types of hosts of which an attempt is one call
_FILE_PROMPT = "file_prompt"
_FILES = ("instructions", "file_a", "document", "file_b")
_LIMITS = ("max_completion_tokens", "max_tokens")

# The kind and the model that are asked for; where none is, the host makes the difference.
Sort: TypeAlias = tuple[str, str | None, str | None]


class Estimate(NamedTuple):
    """Of one task. `usd_from` is where it comes from: the past, or prices, which is the most it may be."""

    usd: float | None = None
    usd_from: str | None = None
    seconds: float | None = None


@dataclass(slots=True)
class _Sum:
    count: int = 0
    total: float = 0.0

    def add(self, amount: float) -> None:
        self.count += 1
        self.total += amount

    @property
    def mean(self) -> float:
        return self.total / self.count


class Estimates:
    def __init__(self, config: Config, past: Iterable[History] = ()) -> None:
        self._config = config
        self._usd: defaultdict[Sort, _Sum] = defaultdict(_Sum)
        self._seconds: defaultdict[Sort, _Sum] = defaultdict(_Sum)
        for history in past:
            self._learn(history)

    def _learn(self, history: History) -> None:
        tasks = {record.task.id: record.task for record in history.records if record.state is State.DONE}
        usd: dict[str, float] = {}
        for (task_id, _), cost in history.costs.items():
            usd[task_id] = usd.get(task_id, 0.0) + cost  # attempts that failed were paid too
        for task_id, cost in usd.items():
            if task_id in tasks:
                self._usd[_sort(tasks[task_id])].add(cost)
        for attempt in history.attempts:
            if attempt.verdict is Verdict.DONE and attempt.ended_at is not None and attempt.task in tasks:
                self._seconds[_sort(tasks[attempt.task])].add(attempt.ended_at - attempt.started_at)

    def of(self, task: Task) -> Estimate:
        sort = _sort(task)
        seconds = self._seconds[sort].mean if sort in self._seconds else None
        if sort in self._usd:
            return Estimate(self._usd[sort].mean, PAST, seconds)
        hosts = self._config.plant.fitting(task)
        most = [self._by_prices(task, host) for host in hosts]
        known = [amount for amount in most if amount is not None]
        if known and len(known) == len(most):  # it may go to any of them
            return Estimate(max(known), PRICES, seconds)
        return Estimate(seconds=seconds)

    def _by_prices(self, task: Task, host: Host) -> float | None:
        payload = task.payload if isinstance(task.payload, Mapping) else {}
        asked = None if task.model in host.serves else task.model  # a kind's name stands for the host's own
        model = asked or host.model or payload.get("model")
        price = self._config.prices.get(model) if isinstance(model, str) else None
        prompt = None if price is None else self._prompt_bytes(task, host)
        answer = _most_tokens(payload, host)
        if price is None or prompt is None or answer is None:
            return None
        return (max(1, prompt // BYTES_PER_TOKEN) * price.input + answer * price.output) / 1_000_000

    def _prompt_bytes(self, task: Task, host: Host) -> int | None:
        if host.type in _CALLS:
            return len(msgspec.json.encode(task.payload))
        if host.type != _FILE_PROMPT or not isinstance(task.payload, Mapping):
            return None  # who knows how often it calls
        size = 0
        root = str(host.options.get("root") or ".")
        if not os.path.isabs(root):
            folder = os.getcwd() if self._config.path is None else self._config.path.absolute().parent
            root = os.path.join(folder, root)
        for name, value in task.payload.items():
            if name in _FILES:
                try:
                    size += os.path.getsize(os.path.join(root, str(value)))
                except OSError:
                    return None
            elif name in ("prompt", "text"):
                size += len(str(value).encode())
        return size


def _sort(task: Task) -> Sort:
    model = task.model
    if model is None and isinstance(task.payload, Mapping):
        asked = task.payload.get("model")  # of the server, as calls have it
        model = asked if isinstance(asked, str) else None
    return task.kind, model, task.host if model is None else None


def _most_tokens(payload: Mapping[str, Any], host: Host) -> int | None:
    """That the answer may have; None where nothing bounds it."""
    if "input" in payload:  # embeddings are no tokens
        return 0
    overrides, defaults = payload.get("overrides"), host.options.get("defaults")
    for table in (overrides, payload, defaults):
        for name in _LIMITS:
            value = table.get(name) if isinstance(table, Mapping) else None
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None
