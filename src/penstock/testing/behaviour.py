"""How a simulated model server behaves: its models, its room, its speed under load, its limits, its faults."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from penstock.errors import UsageError
from penstock.testing.calls import ModelRequest
from penstock.testing.faults import Fault

Style = Literal["openai", "lmstudio", "ollama", "vllm", "llamacpp"]
Slowdown = Literal["shared", "batching", "thrashing"]
SpeedCurve: TypeAlias = Callable[[int], float]
# What a call is answered with: a text, or the message itself.
Answer: TypeAlias = "str | Callable[[ModelRequest], str | Mapping[str, Any]]"
Faults: TypeAlias = "Sequence[Fault | None] | Callable[[ModelRequest], Fault | None]"

STYLES: tuple[str, ...] = get_args(Style)
SLOWDOWNS: tuple[str, ...] = get_args(Slowdown)
# These answer with the model they have, whatever name a call gives.
ANY_NAME = ("lmstudio", "llamacpp")


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """So many requests and tokens a minute; `burst` requests may come at once."""

    requests_per_min: float | None = None
    tokens_per_min: float | None = None
    burst: int = 1
    header: Literal["retry-after", "retry-after-ms", "both", "none"] = "retry-after"

    def __post_init__(self) -> None:
        for name in ("requests_per_min", "tokens_per_min"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise UsageError(f"RateLimit: {name} is {value:g}; it must be above 0")
        if self.burst < 1:
            raise UsageError(f"RateLimit: burst is {self.burst}; it must be at least 1")
        if self.header not in ("retry-after", "retry-after-ms", "both", "none"):
            raise UsageError(
                f"RateLimit: there is no header {self.header!r}; "
                "one of retry-after, retry-after-ms, both, none"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBehaviour:
    """All that makes one simulated server differ from another. A plain one answers at once, without limits.

    Time: a call takes `first_token_s`, then a token each `1 / tokens_per_s`. Both are stretched by load: with
    `knee` calls at once or fewer the server has its full speed, beyond it `slowdown` says what is left.
    """

    style: Style = "openai"
    models: tuple[str, ...] = ("simulated",)

    slots: int | None = None  # calls served at once; None: any number
    queue: int | None = None  # calls that wait for a slot; beyond it: full_status
    full_status: int = 503

    first_token_s: float = 0.0
    prompt_tokens_per_s: float | None = None  # reading the prompt; None: at once
    tokens_per_s: float | None = None  # writing the answer; None: at once
    knee: int | None = None
    slowdown: Slowdown | SpeedCurve = "shared"  # or a function: calls at once → share of full speed
    jitter: float = 0.0  # each call's time varies by up to this share
    seed: int = 0
    early_headers: bool = False  # a stream's headers are sent before the first token is there

    tokens: int | None = None  # words of an answer; None: as many as max_tokens asks for, or 16
    answer: Answer | None = None  # None: the words of the prompt, over and over
    # Where a prompt says who it is: sentences, ballots and summings up, as councils ask for.
    talks: bool = False
    dimensions: int = 384  # of an embedding

    key: str | None = None  # the bearer key that every call must bring
    rate: RateLimit | None = None
    context_tokens: int | None = None
    faults: Faults = ()  # of the first calls, one after the other, or by a function of the call
    health_fault: Fault | None = None  # of GET /v1/models

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise UsageError(f"style: there is no {self.style!r}; one of {', '.join(STYLES)}")
        if isinstance(self.models, str) or not self.models or not all(self.models):
            raise UsageError(f"models: {self.models!r} must be a tuple of at least one name")
        if not callable(self.slowdown) and self.slowdown not in SLOWDOWNS:
            raise UsageError(f"slowdown: there is no {self.slowdown!r}; one of {', '.join(SLOWDOWNS)}")
        self._check_numbers()
        if not 0 <= self.jitter < 1:
            raise UsageError(f"jitter: {self.jitter:g} must be from 0 to below 1")
        if not 400 <= self.full_status <= 599:
            raise UsageError(f"full_status: {self.full_status} is no refusal; 429 and 503 are usual")

    def _check_numbers(self) -> None:
        least = {"slots": 1, "queue": 0, "knee": 1, "first_token_s": 0, "tokens": 1}
        least |= {"dimensions": 1, "context_tokens": 1}
        above = ("prompt_tokens_per_s", "tokens_per_s")
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            if field.name in least and not least[field.name] <= value < math.inf:
                raise UsageError(f"{field.name}: {value:g} must be at least {least[field.name]}")
            if field.name in above and not 0 < value < math.inf:
                raise UsageError(f"{field.name}: {value:g} must be above 0; None is without delay")

    # ---- time

    def speed(self, load: int) -> float:
        """The share of its full speed that each of `load` calls gets."""
        if callable(self.slowdown):
            return max(1e-9, self.slowdown(load))
        if self.knee is None or load < 1:
            return 1.0
        over = load / self.knee
        match self.slowdown:
            case "batching":  # each call in the batch makes a step a little longer, from the first on
                return 1 / (1 + (load - 1) / self.knee)
            case "thrashing":  # beyond the knee even the whole gets slower
                return 1.0 if over <= 1 else over**-2
        return 1.0 if over <= 1 else 1 / over

    def stretch(self, number: int) -> float:
        """This call's own factor on its time."""
        if not self.jitter:
            return 1.0
        chance = random.Random(f"{self.seed}:{number}")  # noqa: S311 - a figure, not a secret
        return 1 + chance.uniform(-self.jitter, self.jitter)

    @property
    def token_s(self) -> float:
        return 0.0 if self.tokens_per_s is None else 1 / self.tokens_per_s

    def prompt_s(self, prompt_tokens: int) -> float:
        if self.prompt_tokens_per_s is None:
            return self.first_token_s
        return self.first_token_s + prompt_tokens / self.prompt_tokens_per_s

    # ---- faults

    def fault_of(self, request: ModelRequest) -> Fault | None:
        if callable(self.faults):
            return self.faults(request)
        return self.faults[request.number] if request.number < len(self.faults) else None

    def served_model(self, name: str) -> str | None:
        """The model that answers a call for `name`."""
        if name in self.models:
            return name
        if self.style in ANY_NAME:
            return self.models[0]
        return None
