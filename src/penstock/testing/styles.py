"""What each kind of model server has beside OpenAI's endpoints, and what it says to a path it does not know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from penstock.testing.behaviour import ModelBehaviour
from penstock.testing.stats import ServerStats
from penstock.testing.wire import encode, error_body

_BATCH = 256  # vLLM's own bound on requests at once, where none is given
_CONTEXT = 4096


class View(NamedTuple):
    """What a page is drawn from."""

    behaviour: ModelBehaviour
    stats: ServerStats


class Page(NamedTuple):
    status: int
    body: bytes
    content_type: str = "application/json"


def page(style: str, method: str, path: str, view: View) -> Page:
    """The answer to any request that is no call and not the list of models."""
    drawn = _PAGES.get(style, {}).get(path)
    if drawn is not None and method in ("GET", "HEAD"):
        return drawn(view)
    if style == "lmstudio":  # it says so with status 200
        return _json({"error": f"Unexpected endpoint or method. ({method} {path})"})
    if style == "vllm":
        return _json({"detail": "Not Found"}, 404)
    if style == "ollama":
        return Page(404, b"404 page not found", "text/plain")
    if style == "llamacpp":
        return _json({"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}, 404)
    message = f"Invalid URL ({method} {path})"
    return _json(error_body(message, "invalid_request_error", "unknown_url"), 404)


def _json(body: Any, status: int = 200) -> Page:
    return Page(status, encode(body))


def _text(text: str) -> Page:
    return Page(200, text.encode(), "text/plain")


# ---- Ollama


def _ollama_models(view: View) -> list[dict[str, Any]]:
    details = {"format": "gguf", "family": "llama", "parameter_size": "8B", "quantization_level": "Q4_K_M"}
    return [
        {"name": name, "model": name, "size": 4_000_000_000, "digest": f"{index:064x}", "details": details}
        for index, name in enumerate(view.behaviour.models)
    ]


def _tags(view: View) -> Page:
    models = [{**one, "modified_at": "2025-01-01T00:00:00Z"} for one in _ollama_models(view)]
    return _json({"models": models})


def _loaded(view: View) -> Page:
    forever = "2318-01-01T00:00:00Z"
    models = [{**one, "expires_at": forever, "size_vram": one["size"]} for one in _ollama_models(view)]
    return _json({"models": models})


# ---- vLLM and llama.cpp


def _share_of_room(view: View) -> float:
    return min(1.0, view.stats.in_flight / (view.behaviour.slots or _BATCH))


def _metrics(lines: list[tuple[str, str, str, float]], labels: str = "") -> Page:
    text = "".join(
        f"# HELP {name} {help_}\n# TYPE {name} {kind}\n{name}{labels} {float(value)}\n"
        for name, kind, help_, value in lines
    )
    return Page(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")


def _vllm_metrics(view: View) -> Page:
    stats = view.stats
    lines = [
        (
            "vllm:num_requests_running",
            "gauge",
            "Number of requests in model execution batches.",
            stats.in_flight,
        ),
        ("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.", stats.queued),
        (
            "vllm:kv_cache_usage_perc",
            "gauge",
            "KV-cache usage. 1 means 100 percent usage.",
            _share_of_room(view),
        ),
        ("vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed.", stats.prompt_tokens),
        ("vllm:generation_tokens_total", "counter", "Number of generation tokens.", stats.completion_tokens),
        ("vllm:request_success_total", "counter", "Count of requests processed.", stats.served),
    ]
    return _metrics(lines, f'{{engine="0",model_name="{view.behaviour.models[0]}"}}')


def _llamacpp_metrics(view: View) -> Page:
    stats = view.stats
    return _metrics(
        [
            ("llamacpp:requests_processing", "gauge", "Number of requests processing.", stats.in_flight),
            ("llamacpp:requests_deferred", "gauge", "Number of requests deferred.", stats.queued),
            (
                "llamacpp:prompt_tokens_total",
                "counter",
                "Number of prompt tokens processed.",
                stats.prompt_tokens,
            ),
            (
                "llamacpp:tokens_predicted_total",
                "counter",
                "Number of generation tokens processed.",
                stats.completion_tokens,
            ),
        ]
    )


def _slots(view: View) -> Page:
    count = view.behaviour.slots or 1
    busy = view.stats.in_flight
    context = view.behaviour.context_tokens or _CONTEXT
    return _json([{"id": n, "n_ctx": context, "is_processing": n < busy} for n in range(count)])


def _props(view: View) -> Page:
    settings = {"n_ctx": view.behaviour.context_tokens or _CONTEXT}
    model = view.behaviour.models[0]
    return _json(
        {
            "default_generation_settings": settings,
            "total_slots": view.behaviour.slots or 1,
            "model_alias": model,
            "model_path": f"models/{model}.gguf",
        }
    )


# ---- LM Studio


def _lmstudio_models(view: View) -> Page:
    context = view.behaviour.context_tokens or _CONTEXT
    form = {"type": "llm", "publisher": "simulated", "arch": "llama", "compatibility_type": "gguf"}
    form |= {"quantization": "Q4_K_M", "state": "loaded", "object": "model"}
    data = [{"id": name, **form, "max_context_length": context} for name in view.behaviour.models]
    return _json({"object": "list", "data": data})


_PAGES: Mapping[str, Mapping[str, Callable[[View], Page]]] = {
    "ollama": {
        "/": lambda _: _text("Ollama is running"),
        "/api/tags": _tags,
        "/api/ps": _loaded,
        "/api/version": lambda _: _json({"version": "0.9.0"}),
    },
    "vllm": {
        "/metrics": _vllm_metrics,
        "/health": lambda _: _text(""),
        "/version": lambda _: _json({"version": "0.10.0"}),
    },
    "llamacpp": {
        "/slots": _slots,
        "/metrics": _llamacpp_metrics,
        "/props": _props,
        "/health": lambda _: _json({"status": "ok"}),
    },
    "lmstudio": {"/api/v0/models": _lmstudio_models},
}
