"""What an attempt has used of a model so far, for those that end before their answer is complete.

Such an answer is paid all the same. What a stream brought is counted as it came; of an answer that comes in one
piece nothing is seen before its end, and servers make it to the end, so it counts as long as others there were.
"""

from __future__ import annotations

from penstock.hosts.base import Spent
from penstock.hosts.model_body import Ask
from penstock.hosts.model_reply import Usage, estimate
from penstock.hosts.model_stream import Assembly, Tail
from penstock.model import Host

_WEIGHT = 0.1  # of the latest answer in the mean
# Failures by which it is we who give up on an answer that the server makes.
_GIVEN_UP = frozenset({"timeout", "reply_too_large"})


class Lengths:
    """How many tokens the whole answers of a host have, by endpoint."""

    def __init__(self) -> None:
        self._means: dict[str, float] = {}

    def learn(self, endpoint: str, tokens: int) -> None:
        mean = self._means.setdefault(endpoint, tokens)
        self._means[endpoint] = mean + (tokens - mean) * _WEIGHT

    def usual(self, endpoint: str) -> int:
        return round(self._means.get(endpoint, 0.0))


class Meter:
    """Of one attempt."""

    def __init__(self, ask: Ask, host: Host, lengths: Lengths) -> None:
        self._ask = ask
        self._host = host
        self._lengths = lengths
        self._sent = False
        self._stream: Tail | Assembly | None = None
        self._usage: Usage | None = None

    def sent(self) -> None:
        """The server has the request, or is being sent it."""
        self._sent = True

    def streams(self, stream: Tail | Assembly) -> None:
        """The answer comes in events, and this counts them."""
        self._stream = stream

    def made(self, usage: Usage) -> None:
        """The answer is here in one piece."""
        self._usage = usage
        self._lengths.learn(self._ask.endpoint, usage.completion)

    def spent(self) -> Spent:
        """If it ended here."""
        model = None
        usage = self._usage
        if usage is None and self._stream is not None:
            read = self._stream.read() if isinstance(self._stream, Tail) else self._stream
            usage, model = read.usage or estimate(self._ask.body, self._stream.tokens), read.model
        if usage is None:
            if not self._sent:
                return Spent()
            unseen = 0 if self._ask.streamed else self._lengths.usual(self._ask.endpoint)
            usage = estimate(self._ask.body, unseen)
        return Spent(usage.total, usage.cost_usd(self._host.prices, self._ask.model, model))

    def spent_in_vain(self, failure: str) -> Spent:
        """By an attempt that failed so: nothing, where the server refused or broke off before it answered."""
        answered = self._stream is not None and self._stream.tokens
        return self.spent() if answered or failure in _GIVEN_UP else Spent()
