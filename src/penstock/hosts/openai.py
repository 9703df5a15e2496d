"""A host that is an OpenAI-compatible server: LM Studio, Ollama, vLLM, llama.cpp, or one in the cloud.

    [hosts.surtr]
    type = "openai"
    url = "http://surtr:1234/v1"
    model = "qwen2.5-32b"

A task's payload becomes one call and its reply the task's value. A call of the front door goes through as it is:
its `Relay` gets the answer byte for byte, as it comes. Once the client has a byte no other attempt can help, so
whatever breaks from then on ends the task, and is told in the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from penstock.clock import Clock
from penstock.hosts.base import Health, Job, OwnCoroutine
from penstock.hosts.model_body import Ask, ask_of_payload, ask_of_relay, real_models
from penstock.hosts.model_errors import classify, said
from penstock.hosts.model_health import read_models
from penstock.hosts.model_http import Answer, CallFailed, ModelServer
from penstock.hosts.model_meter import Lengths, Meter
from penstock.hosts.model_options import read_options
from penstock.hosts.model_reply import Unusable, Usage, estimate, read_head, usage_of, value_of
from penstock.hosts.model_stream import (
    Assembly,
    Events,
    StreamError,
    Tail,
    Veil,
    error_event,
    told_error,
)
from penstock.hosts.relay import ClientStalled, Refusal, Relay
from penstock.model import ANY_MODEL, Host, Outcome, Verdict

_DRAIN_S = 0.2  # between a stream's [DONE] and the end of its HTTP answer
_PASSED = frozenset({"content-type", "retry-after", "retry-after-ms", "x-request-id"})
_PASSED_PREFIXES = ("openai-", "x-ratelimit-")


Tap: TypeAlias = Callable[[str], None]


class OpenAIAdapter:
    def __init__(self, host: Host, clock: Clock, server: ModelServer | None = None) -> None:
        self._host = host
        self._clock = clock
        self._server = server or ModelServer(host.name, read_options(host))
        self._lengths = Lengths()
        self._seen: tuple[str, ...] = ()  # models that the server told at the last check
        self.check_every_s = self._server.options.health_s

    async def open(self) -> None:
        await self._server.open()

    async def close(self) -> None:
        await self._server.close()

    def work(self, job: Job) -> OwnCoroutine:
        payload = job.payload
        if isinstance(payload, Relay):
            ask = ask_of_relay(
                payload.endpoint, payload.body, payload.streamed, job.model, self._host, self._seen
            )
            ask = replace(ask, trace=job.trace)
            meter = Meter(ask, self._host, self._lengths)
            return OwnCoroutine(lambda: self._relay(ask, payload, job.attempt, meter), meter.spent)
        ask = ask_of_payload(
            payload, job.kind, job.model, self._host, self._server.options.defaults, self._seen
        )
        ask = replace(ask, trace=job.trace)
        meter = Meter(ask, self._host, self._lengths)
        return OwnCoroutine(lambda: self._perform(ask, meter, job.tap), meter.spent)

    async def check(self) -> Health:
        health = await read_models(self._server, self._host)
        if health.models:
            self._seen = health.models
        return health

    # ---- tasks

    async def _perform(self, ask: Ask, meter: Meter, tap: Tap | None) -> Outcome:
        try:
            async with self._server.ask(ask, meter.sent) as answer:
                await self._raise_refusal(ask, answer)
                if ask.streamed and answer.is_stream:
                    return await self._assemble(ask, answer, meter, tap)
                return self._read(ask, await answer.whole(), meter)
        except CallFailed as failed:
            return _in_vain(failed, meter)

    def _read(self, ask: Ask, body: bytes, meter: Meter) -> Outcome:
        try:
            head = read_head(body, ask.endpoint)
            if head.error is not None:
                raise self._refused(ask, 200, {}, body)
            value, model = value_of(body, ask.endpoint)
        except Unusable as error:
            raise self._unusable(error) from None
        text = value.get("text")
        usage = usage_of(head.usage) or estimate(ask.body, len(text) // 4 if isinstance(text, str) else 0)
        meter.made(usage)
        return self._done(value, ask, model, usage)

    async def _assemble(self, ask: Ask, answer: Answer, meter: Meter, tap: Tap | None) -> Outcome:
        events, parts = Events(), Assembly()
        meter.streams(parts)
        try:
            while not parts.done and (chunk := await answer.chunk()):
                for event in events.feed(chunk):
                    parts.add(event)
                if (fresh := parts.take()) and tap is not None:
                    tap(fresh)
            if not parts.done and (rest := events.last()) is not None:
                parts.add(rest)
                if (fresh := parts.take()) and tap is not None:
                    tap(fresh)
            if not (parts.done or parts.finished):
                raise Unusable("a stream that ended before it was complete")
            value = parts.value()
        except Unusable as error:
            raise self._unusable(error) from None
        except StreamError as error:
            raise self._refused(ask, 200, {}, error.body) from None
        await answer.drain(_DRAIN_S)
        return self._done(value, ask, parts.model, parts.usage or estimate(ask.body, parts.tokens))

    def _done(self, value: dict[str, Any], ask: Ask, model: str | None, usage: Usage) -> Outcome:
        used = {"model": model or ask.model, "usage": usage.as_record()}
        return Outcome(
            Verdict.DONE,
            {**value, **used},
            tokens=usage.total,
            cost_usd=usage.cost_usd(self._host.prices, ask.model, model),
        )

    # ---- calls of the front door

    async def _relay(self, ask: Ask, relay: Relay, attempt: int, meter: Meter) -> Outcome:
        if relay.begun:  # an attempt was ended from outside, by its time or by hand
            return Outcome(Verdict.PERMANENT, error="the answer had begun, so it was not tried again")
        relay.refusal = None
        relay.timed_out = False
        tail = Tail()
        try:
            async with self._server.ask(ask, meter.sent) as answer:
                await self._raise_refusal(ask, answer)
                if ask.streamed and answer.is_stream:
                    return await self._pass_stream(ask, relay, attempt, answer, tail, meter)
                return await self._pass_whole(ask, relay, attempt, answer, meter)
        except CallFailed as failed:
            if not relay.begun:
                relay.refusal = failed.refusal
                relay.timed_out = failed.code == "timeout"
                return _in_vain(failed, meter)
            return await _break_off(relay, failed, tail, meter)
        except ClientStalled as stalled:
            tokens, cost_usd = meter.spent()
            return Outcome(Verdict.PERMANENT, error=str(stalled), tokens=tokens, cost_usd=cost_usd)

    async def _pass_whole(
        self, ask: Ask, relay: Relay, attempt: int, answer: Answer, meter: Meter
    ) -> Outcome:
        body = await answer.whole()
        try:
            head = read_head(body, ask.endpoint)
        except Unusable as error:
            raise self._unusable(error) from None
        if head.error is not None:
            raise self._refused(ask, 200, answer.headers, body)
        usage = usage_of(head.usage) or estimate(ask.body, sum(map(len, head.choices or ())) // 4)
        meter.made(usage)
        answer.rest()
        await relay.whole(answer.status, self._passed(answer.headers), self._host.name, attempt, body)
        return self._done(relay.record(), ask, head.model, usage)

    async def _pass_stream(
        self, ask: Ask, relay: Relay, attempt: int, answer: Answer, tail: Tail, meter: Meter
    ) -> Outcome:
        chunk = await answer.chunk()
        if not chunk:
            raise self._unusable(Unusable("an empty stream"))
        if (told := told_error(chunk)) is not None:
            raise self._refused(ask, 200, answer.headers, told)
        meter.streams(tail)
        await relay.begin(answer.status, self._passed(answer.headers), self._host.name, attempt)
        veil = Veil(self._server.options.key.redact_bytes)
        while chunk:
            tail.add(chunk)
            answer.rest()
            if passed := veil.let_through(chunk):
                await relay.send(passed)
            if tail.done:
                break
            answer.resume()
            chunk = await answer.chunk()
        if rest := veil.rest():
            await relay.send(rest)
        end = tail.read()
        if end.error is not None:
            await relay.end()
            return _broken(relay, self._refused(ask, 200, {}, end.error), meter)
        if not (tail.done or end.finished):
            raise self._unusable(Unusable("a stream that ended before it was complete"))
        await relay.end()
        await answer.drain(_DRAIN_S)
        return self._done(relay.record(), ask, end.model, end.usage or estimate(ask.body, tail.tokens))

    # ---- refusals

    async def _raise_refusal(self, ask: Ask, answer: Answer) -> None:
        if not 200 <= answer.status < 300:
            raise self._refused(ask, answer.status, answer.headers, await answer.words())

    def _refused(self, ask: Ask, status: int, headers: Any, body: bytes) -> CallFailed:
        key = self._server.options.key
        outcome = classify(
            status,
            headers,
            key.redact_bytes(body),
            host=self._host.name,
            now=self._clock.now(),
            model=ask.model,
            own_model=ask.own,
            only_model=ANY_MODEL not in self._host.models and real_models(self._host) == [ask.model],
            key_remedy=key.remedy,
        )
        refusal = None
        if said(body).shaped and status >= 400:
            refusal = Refusal(status, self._passed(headers), key.redact_bytes(body))
        return CallFailed(outcome, "upstream_error", refusal)

    def _passed(self, headers: Any) -> tuple[tuple[str, str], ...]:
        """Of a server's headers those that mean something to the client."""
        return tuple(
            (name.lower(), self._server.options.key.redact(value))
            for name, value in headers.items()
            if (name.lower() in _PASSED or name.lower().startswith(_PASSED_PREFIXES))
            and value.isascii()
            and value.isprintable()
        )

    def _unusable(self, error: Unusable) -> CallFailed:
        text = self._server.options.key.redact(f"{self._host.name} sent {error}")
        return CallFailed(Outcome(Verdict.HOST, error=text), "upstream_error")


def _in_vain(failed: CallFailed, meter: Meter) -> Outcome:
    tokens, cost_usd = meter.spent_in_vain(failed.code)
    return replace(failed.outcome, tokens=tokens, cost_usd=cost_usd)


async def _break_off(relay: Relay, failed: CallFailed, tail: Tail, meter: Meter) -> Outcome:
    """The client has a part of the answer: it is told that no more comes, and nobody tries again."""
    outcome = _broken(relay, failed, meter)
    await relay.send(tail.closing() + error_event(outcome.error or "", failed.code))
    await relay.end()
    return outcome


def _broken(relay: Relay, failed: CallFailed, meter: Meter) -> Outcome:
    outcome = failed.outcome
    tokens, cost_usd = meter.spent()
    return replace(
        outcome,
        verdict=Verdict.PERMANENT,
        value=relay.record() or None,
        error=f"{outcome.error}; the answer had begun, so it was not tried again",
        retry_after_s=None,
        host_fault=outcome.verdict is Verdict.HOST,
        tokens=tokens,
        cost_usd=cost_usd,
    )


def make(host: Host, clock: Clock) -> OpenAIAdapter:
    return OpenAIAdapter(host, clock)
