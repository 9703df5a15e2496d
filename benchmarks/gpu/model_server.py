"""The transformer behind an OpenAI-compatible server: /v1/models, /v1/chat/completions, whole or streamed.

    python -m benchmarks.gpu.model_server --port 8801

It prints one line of JSON when it is ready: its address, its parameters, and how many tokens a second the model
makes with so many slots in use and no server around it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import zlib
from collections.abc import Sequence
from typing import Any

import torch
from aiohttp import web

from benchmarks.gpu.batching import Batching, Request, Steady
from benchmarks.gpu.transformer import Shape, Transformer

MODEL = "random-3b"
_PIECE = 4  # characters to a token
_DEFAULT_TOKENS = 128


def tokens_of(messages: list[dict[str, Any]], vocabulary: int) -> list[int]:
    text = "\n".join(str(message.get("content", "")) for message in messages)
    pieces = (text[at : at + _PIECE] for at in range(0, max(1, len(text)), _PIECE))
    return [zlib.crc32(piece.encode()) % vocabulary for piece in pieces]


def text_of(tokens: Sequence[int]) -> str:
    return "".join(f"w{token:x} " for token in tokens)


class Server:
    def __init__(self, model: Transformer) -> None:
        self._shape = model.shape
        self._batching = Batching(model)
        self._served = 0

    async def start(self, host: str, port: int) -> web.AppRunner:
        self._batching.start()
        app = web.Application(client_max_size=8 * 1024 * 1024)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, host, port, backlog=1024).start()
        return runner

    def stop(self) -> None:
        self._batching.stop()

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        body = await http.json()
        prompt = tokens_of(body["messages"], self._shape.vocabulary)
        most = int(body.get("max_tokens") or _DEFAULT_TOKENS)
        if len(prompt) + most >= self._shape.length:
            told = f"{len(prompt)} tokens and {most} to make are more than {self._shape.length - 1}"
            error = {"message": told, "type": "invalid_request_error", "param": "messages"}
            return web.json_response({"error": error | {"code": "context_length_exceeded"}}, status=400)
        streamed = bool(body.get("stream"))
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[Sequence[int] | None] = asyncio.Queue()

        def tell(piece: Sequence[int] | None) -> None:
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

        request = Request(prompt, most, tell, streamed=streamed)
        self._served += 1
        id = f"chat-{self._served}"
        self._batching.add(request)
        try:
            return await (
                self._stream(http, id, request, pieces) if streamed else self._whole(id, request, pieces)
            )
        finally:
            request.left = True

    async def _whole(
        self, id: str, request: Request, pieces: asyncio.Queue[Sequence[int] | None]
    ) -> web.Response:
        made: list[int] = []
        while (piece := await pieces.get()) is not None:
            made += piece
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text_of(made)},
            "finish_reason": "length",
        }
        whole = {"id": id, "object": "chat.completion", "model": MODEL, "choices": [choice]}
        return web.json_response(whole | {"usage": _usage(request)})

    async def _stream(
        self, http: web.Request, id: str, request: Request, pieces: asyncio.Queue[Sequence[int] | None]
    ) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(http)
        head = {"id": id, "object": "chat.completion.chunk", "model": MODEL}
        while (piece := await pieces.get()) is not None:
            choice = {"index": 0, "delta": {"content": text_of(piece)}, "finish_reason": None}
            await answer.write(_event(head | {"choices": [choice]}))
        last = {"index": 0, "delta": {}, "finish_reason": "length"}
        await answer.write(_event(head | {"choices": [last]}))
        await answer.write(_event(head | {"choices": [], "usage": _usage(request)}) + b"data: [DONE]\n\n")
        await answer.write_eof()
        return answer


def _usage(request: Request) -> dict[str, int]:
    prompt, made = len(request.prompt), len(request.made)
    return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


async def serve(host: str, port: int, shape: Shape) -> None:
    model = Transformer(shape)
    model.prefill([(0, [1] * 64)])
    model.record()
    steady = Steady(model)
    alone = {slots: round(steady.tokens_per_s(slots)) for slots in shape.batches}
    server = Server(model)
    runner = await server.start(host, port)
    ready = {
        "url": f"http://{host}:{port}/v1",
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "parameters": shape.parameters,
        "memory_gb": round(torch.cuda.memory_allocated() / 2**30, 1),
        "model_alone_tokens_per_s": alone,
    }
    print(json.dumps(ready), flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        server.stop()
        await runner.cleanup()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=8801)
    options.add_argument("--layers", type=int, default=Shape().layers)
    given = options.parse_args()
    asyncio.run(serve(given.host, given.port, Shape(layers=given.layers)))


if __name__ == "__main__":
    main()
