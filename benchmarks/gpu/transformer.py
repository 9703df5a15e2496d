"""A decoder-only transformer of some billion parameters with random weights, and the cache of its keys and values.

It is as costly to run as a trained one of its shape, which is all that is measured. Requests live in slots of one
static cache. A decoding step takes all slots up to the highest one in use, so each number of slots and each length
of the cache has a CUDA graph of its own, recorded once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch.nn import functional

_BATCHES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_EPSILON = 1e-5
_ROPE_BASE = 500_000.0


Function = TypeVar("Function", bound=Callable[..., Any])


def _without_gradients(function: Function) -> Function:
    """As `torch.inference_mode()` does, with its type."""
    wrapped: Function = torch.inference_mode()(function)
    return wrapped


@dataclass(frozen=True, slots=True)
class Shape:
    """About three billion parameters, in the proportions of today's open models."""

    layers: int = 28
    width: int = 3072
    heads: int = 24
    kv_heads: int = 8
    head: int = 128
    inner: int = 8192
    vocabulary: int = 32_000
    slots: int = 64
    length: int = 2048

    @property
    def parameters(self) -> int:
        attention = self.width * self.head * (2 * self.heads + 2 * self.kv_heads)
        layer = attention + 3 * self.width * self.inner + 2 * self.width
        return self.layers * layer + 2 * self.vocabulary * self.width + self.width

    @property
    def lengths(self) -> tuple[int, ...]:
        return (*(n for n in (256, 512, 1024, 2048, 4096) if n < self.length), self.length)

    @property
    def batches(self) -> tuple[int, ...]:
        return (*(n for n in _BATCHES if n < self.slots), self.slots)


@dataclass(slots=True)
class _Layer:
    norm_in: torch.Tensor
    qkv: torch.Tensor
    out: torch.Tensor
    norm_mid: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    keys: torch.Tensor  # slots, kv heads, length, head
    values: torch.Tensor


class Transformer:
    """`prefill` puts a prompt into a slot, `decode` makes one token for each slot up to a number."""

    def __init__(self, shape: Shape, device: str = "cuda", seed: int = 0) -> None:
        self.shape = shape
        self._device = device
        self._kind = torch.bfloat16
        self._chance = torch.Generator(device=device).manual_seed(seed)
        self._embedding = self._weights(shape.vocabulary, shape.width)
        self._head = self._weights(shape.vocabulary, shape.width)
        self._norm = self._ones()
        self._layers = [self._layer() for _ in range(shape.layers)]
        half = shape.head // 2
        steps = torch.arange(half, device=device, dtype=torch.float32) / half
        angles = torch.outer(torch.arange(shape.length, device=device).float(), _ROPE_BASE**-steps)
        self._cos, self._sin = angles.cos().to(self._kind), angles.sin().to(self._kind)
        # What a recorded graph reads and writes lies at the same place each time.
        self.tokens = torch.zeros(shape.slots, dtype=torch.long, device=device)
        self.places = torch.zeros(shape.slots, dtype=torch.long, device=device)
        self._every_slot = torch.arange(shape.slots, device=device)
        self._graphs: dict[tuple[int, int], Any] = {}

    # ---- making

    def _weights(self, rows: int, columns: int) -> torch.Tensor:
        made = torch.empty(rows, columns, dtype=self._kind, device=self._device)
        return made.normal_(0.0, 0.02, generator=self._chance)

    def _ones(self) -> torch.Tensor:
        return torch.ones(self.shape.width, dtype=self._kind, device=self._device)

    def _layer(self) -> _Layer:
        s = self.shape
        cache = (s.slots, s.kv_heads, s.length, s.head)
        return _Layer(
            norm_in=self._ones(),
            qkv=self._weights((s.heads + 2 * s.kv_heads) * s.head, s.width),
            out=self._weights(s.width, s.heads * s.head),
            norm_mid=self._ones(),
            gate_up=self._weights(2 * s.inner, s.width),
            down=self._weights(s.width, s.inner),
            keys=torch.zeros(cache, dtype=self._kind, device=self._device),
            values=torch.zeros(cache, dtype=self._kind, device=self._device),
        )

    # ---- running

    @_without_gradients
    def record(self) -> None:
        """Record every graph, so that no request pays for it."""
        if self._device != "cuda":
            return
        pool = None
        for length in reversed(self.shape.lengths):
            for batch in reversed(self.shape.batches):
                aside = torch.cuda.Stream()
                aside.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(aside):
                    self._decode(batch, length)
                torch.cuda.current_stream().wait_stream(aside)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool):
                    self._decode(batch, length)
                pool = graph.pool()
                self._graphs[batch, length] = graph

    @_without_gradients
    def prefill(self, prompts: list[tuple[int, list[int]]]) -> None:
        """Fill the slots of these prompts and put each one's first token where the next step reads it."""
        longest = max(len(tokens) for _, tokens in prompts)
        padded = [tokens + [0] * (longest - len(tokens)) for _, tokens in prompts]
        ids = torch.tensor(padded, device=self._device)
        slots = torch.tensor([slot for slot, _ in prompts], device=self._device)
        ends = torch.tensor([len(tokens) for _, tokens in prompts], device=self._device)
        hidden = functional.embedding(ids, self._embedding)
        cos, sin = self._cos[:longest], self._sin[:longest]
        for layer in self._layers:
            q, k, v = self._projected(layer, hidden)
            q, k = _turned(q.transpose(1, 2), cos, sin), _turned(k.transpose(1, 2), cos, sin)
            v = v.transpose(1, 2)
            layer.keys[slots, :, :longest] = k
            layer.values[slots, :, :longest] = v
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            hidden = self._finished(layer, hidden, mixed.transpose(1, 2).flatten(2))
        last = hidden[torch.arange(len(prompts), device=self._device), ends - 1]
        self.tokens[slots] = self._chosen(last)
        self.places[slots] = ends

    @_without_gradients
    def decode(self, slots: int, longest: int) -> None:
        """One more token for every slot below `slots`; `longest` is the highest place among them."""
        batch = next(n for n in self.shape.batches if n >= slots)
        length = next(n for n in self.shape.lengths if n > longest)
        graph = self._graphs.get((batch, length))
        if graph is None:
            self._decode(batch, length)
        else:
            graph.replay()

    def _decode(self, batch: int, length: int) -> None:
        s = self.shape
        tokens, places, every = self.tokens[:batch], self.places[:batch], self._every_slot[:batch]
        hidden = functional.embedding(tokens, self._embedding)
        cos, sin = self._cos[places].unsqueeze(1), self._sin[places].unsqueeze(1)
        hides = torch.arange(length, device=self._device) > places.unsqueeze(1)
        hides = hides.view(batch, 1, 1, length)
        for layer in self._layers:
            q, k, v = self._projected(layer, hidden)
            q, k = _turned(q, cos, sin), _turned(k, cos, sin)
            layer.keys[every, :, places] = k
            layer.values[every, :, places] = v
            grouped = q.view(batch, s.kv_heads, s.heads // s.kv_heads, s.head)
            weights = grouped @ layer.keys[:batch, :, :length].transpose(-1, -2)
            weights = (weights * s.head**-0.5).masked_fill(hides, float("-inf")).softmax(-1)
            mixed = weights @ layer.values[:batch, :, :length]
            hidden = self._finished(layer, hidden, mixed.reshape(batch, -1))
        tokens.copy_(self._chosen(hidden))
        places.add_(1).clamp_(max=s.length - 1)

    def _projected(self, layer: _Layer, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
        s = self.shape
        normed = functional.rms_norm(hidden, (s.width,), layer.norm_in, _EPSILON)
        joined = functional.linear(normed, layer.qkv)
        parts = joined.unflatten(-1, (s.heads + 2 * s.kv_heads, s.head))
        q, k, v = parts.split((s.heads, s.kv_heads, s.kv_heads), dim=-2)
        return q, k, v

    def _finished(self, layer: _Layer, hidden: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        hidden = hidden + functional.linear(mixed, layer.out)
        normed = functional.rms_norm(hidden, (self.shape.width,), layer.norm_mid, _EPSILON)
        gate, up = functional.linear(normed, layer.gate_up).chunk(2, dim=-1)
        return hidden + functional.linear(functional.silu(gate) * up, layer.down)

    def _chosen(self, hidden: torch.Tensor) -> torch.Tensor:
        normed = functional.rms_norm(hidden, (self.shape.width,), self._norm, _EPSILON)
        return functional.linear(normed, self._head).argmax(-1)


def _turned(parts: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions."""
    left, right = parts.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, left * sin + right * cos), dim=-1)
