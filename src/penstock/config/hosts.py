"""[hosts.NAME] → Host: what the scheduler must know of it; everything else is for its adapter."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from penstock.config import keys
from penstock.config.councils import COUNCIL_TYPE, LIBRARY_TYPE
from penstock.config.engine import nodes_document, read_nodes
from penstock.config.keys import HostTypes
from penstock.config.problems import Near, WrongOptions, nearest
from penstock.config.tables import Table
from penstock.model import ANY_MODEL, AutoSlots, BreakerRule, Fallback, Host, Price, Rate

# Servers that people name as the type, without what is no letter.
_OPENAI_SERVERS = frozenset(
    {"llamacpp", "llamacppserver", "llamafile", "llamaserver", "litellm", "lmstudio", "localai", "mlx"}
    | {"ollama", "openaicompatible", "openrouter", "sglang", "tgi", "vllm"}
)
_NO_SECRETS = (
    'a secret does not belong in this file; keep it in an environment variable: key_env = "ITS_NAME"'
)


def read_host(
    name: str, table: Table, types: HostTypes, folder: Path, prices: Mapping[str, Price] | None = None
) -> Host:
    type_ = _type(table, types)
    options = _options(table, type_, types)
    options |= {key: _placed(options[key], folder) for key in keys.FOLDER_OPTIONS if key in options}
    slots, auto = _slots(table)
    serves = _serves(table, type_)
    model = table.text("model", None)
    if model is None and type_ == "local":
        model = _local_model(options.get("gguf"))
    is_run = type_ in keys.RUN_TYPES
    has_models = type_ in keys.MODEL_TYPES or is_run
    host = Host(
        name=name,
        type=type_,
        slots=slots,
        auto=auto,
        units=_units(table),
        serves=serves,
        model=model,
        models=_models(table, model, serves, type_),
        rate=_rate(table),
        fallback=_fallback(table),
        breaker=_breaker(table),
        # What comes back to us is paid where it is answered, and would be counted twice.
        prices=(prices or {}) if has_models and not (is_run and "url" not in options) else {},
        options=options,
        takes_calls=_takes_calls(table, type_),
        ray=read_nodes(table),
    )
    if type_ in types and not table.any_names:
        _check_options(host, table)
    return host


def _check_options(host: Host, table: Table) -> None:
    """Whether its adapter could use them. (What is replayed makes no attempts, and its options were not kept.)"""
    reader = keys.READERS.get(host.type)
    if reader is None:  # a plug-in's: it says so when it is made
        return
    module, _, name = reader.partition(":")
    try:
        getattr(import_module(module), name)(host)
    except WrongOptions as wrong:
        for path, message in wrong.found:
            table.problems.add(path, message)


def _takes_calls(table: Table, type_: str) -> bool:
    """Whether it answers calls for its models. A host whose attempts make such calls would wait for itself."""
    return type_ not in keys.RUN_TYPES and (type_ not in keys.MODEL_TYPES or table.flag(keys.OF_MODELS, True))


def _type(table: Table, types: HostTypes) -> str:
    if "type" not in table:
        if misspelt := nearest("type", [key for key in table.raw if key not in keys.HOST]):
            table.refuse("unknown key; did you mean 'type'?", misspelt)
        else:
            table.refuse(f'has no type; add type = "…", one of: {", ".join(sorted(types))}')
        return ""
    type_ = table.text("type", "")
    if type_ and type_ not in types:
        available = f"available: {', '.join(sorted(types))}"
        if type_ in (COUNCIL_TYPE, LIBRARY_TYPE):
            message = (
                "hosts of this type are there by themselves, with a table [councils.NAME]; remove this one"
            )
            table.refuse(message, "type")
        elif type_ in keys.OPTIONS:
            table.refuse(f"this host type is not available in this version; {available}", "type")
        elif re.sub(r"[^a-z]", "", type_.lower()) in _OPENAI_SERVERS:
            table.refuse('unknown host type; use type = "openai": this server speaks its API', "type")
        else:
            near = Near(type_, list(types), "available")
            table.refuse("unknown host type", "type", near=near)
    return type_


def _options(table: Table, type_: str, types: HostTypes) -> dict[str, Any]:
    """What the adapter gets: every key that is not the scheduler's."""
    found: dict[str, Any] = {}
    known = types.get(type_)
    allowed = None if known is None else {*keys.HOST, *known}
    for key, value in table.raw.items():
        if key in keys.HOST or (key == keys.OF_MODELS and type_ in keys.MODEL_TYPES):
            continue
        if key.lower() in keys.SECRETS and (allowed is None or key not in allowed):
            table.refuse(_NO_SECRETS, key)
        elif key == keys.OF_MODELS and allowed is not None and key not in allowed:
            table.refuse(f"belongs to a host of type {' or '.join(keys.MODEL_TYPES)}; remove it", key)
        elif allowed is not None and key not in allowed:
            table.refuse("unknown key", key, near=Near(key, allowed, f"a {type_} host has"))
        else:
            found[key] = value
    return found


def _placed(value: Any, folder: Path) -> Any:
    """A path, or a list of them, made absolute; anything else is its adapter's to refuse."""
    if isinstance(value, str):
        return os.path.normpath(folder / os.path.expanduser(value))
    if isinstance(value, list | tuple):
        return [_placed(one, folder) if isinstance(one, str) else one for one in value]
    return value


def _local_model(gguf: Any) -> str:
    """The name of the one model that a local host has."""
    if not isinstance(gguf, str):
        return keys.PACKAGED_MODEL
    return Path(gguf).stem[: keys.MAX_MODEL] or keys.PACKAGED_MODEL


def _models(table: Table, model: str | None, serves: tuple[str, ...], type_: str) -> tuple[str, ...]:
    """The names a call may ask for this host by: its models, the kinds it serves, and `auto`."""
    if type_ not in keys.MODEL_TYPES + keys.RUN_TYPES:
        if "models" in table:
            table.refuse(f"belongs to a host of type {' or '.join(keys.MODEL_TYPES)}", "models")
        return ()
    return _all_models(model, table.texts("models", (), most=keys.MAX_MODELS), serves, type_)


def _all_models(model: str | None, own: Sequence[str], serves: Sequence[str], type_: str) -> tuple[str, ...]:
    # Where attempts call models, the host's own is but the one for tasks that name none.
    if not own and (model is None or type_ in keys.RUN_TYPES):
        own = (ANY_MODEL,)
    kinds = [kind for kind in serves if kind != "*"]
    return tuple(dict.fromkeys([*([model] if model else []), *own, *kinds, keys.AUTO_MODEL]))


def _own_models(host: Host) -> list[str]:
    """Those that `models` of its table must name: what it has by its kinds goes where these go."""
    implied = (ANY_MODEL, keys.AUTO_MODEL, host.model, *host.serves)
    own = [model for model in host.models if model not in implied]
    if not host.models or _all_models(host.model, own, host.serves, host.type) == host.models:
        return own
    return [model for model in host.models if model != host.model]


def _slots(table: Table) -> tuple[int, AutoSlots | None]:
    """How many to start with, and the bounds of slots that tune themselves."""
    if not isinstance(table.raw.get("slots"), Mapping):
        return table.whole("slots", 1, keys.COUNT), None
    auto = table.table("slots", "{ auto = true, min = 1, max = 8 }")
    if auto is None:
        return 1, None
    auto.only(keys.SLOTS)
    if auto.raw.get("auto") is not True:
        auto.refuse("must say auto = true; for a fixed number write slots = 4")
    if "max" not in auto:
        auto.refuse("has no max; say how many slots it may grow to")
    low = auto.whole("min", 1, keys.COUNT)
    high = auto.whole("max", low, keys.COUNT)
    if high < low:
        auto.refuse("is more than max", "min")
    return low, AutoSlots(low, high)


def _units(table: Table) -> dict[str, float]:
    units = table.table("units", "{ vram_gb = 24 }")
    if units is None:
        return {}
    if len(units.raw) > keys.MAX_UNITS:
        units.refuse(f"{len(units.raw)} units are too many; at most {keys.MAX_UNITS}")
        return {}
    found = {}
    for unit in units.raw:
        if unit == "slots":
            units.refuse("slots are no unit here; write slots = … beside units", unit)
        elif unit == keys.TOKENS:
            units.refuse("tokens are no unit of a host; write rate = { tokens_per_min = … }", unit)
        elif not keys.NAME.fullmatch(unit):
            units.refuse(f"is not a name: {keys.NAME_RULE}", unit)
        elif (amount := units.number(unit, None, keys.AMOUNT)) is not None:
            found[unit] = amount
    return found


def _serves(table: Table, type_: str) -> tuple[str, ...]:
    if table.raw.get("serves") in ([], ()):
        table.refuse('is empty, so the host would never work; name kinds, or "*" for all', "serves")
    default = (type_,) if type_ == "file_prompt" else ("*",)  # its payloads are for nobody else
    return table.names("serves", default, most=keys.MAX_SERVES, also=("*",))


def _rate(table: Table) -> Rate | None:
    rate = table.table("rate", "{ requests_per_min = 60 }")
    if rate is None:
        return None
    rate.only(keys.RATE)
    if not rate.raw:
        rate.refuse(f"is empty; give {' or '.join(keys.RATE)}, or remove it")
    return Rate(
        requests_per_min=rate.number("requests_per_min", None, keys.PER_MINUTE),
        tokens_per_min=rate.number("tokens_per_min", None, keys.PER_MINUTE),
    )


def _fallback(table: Table) -> Fallback | None:
    fallback = table.table("fallback", "{ after_s = 30 }")
    if fallback is None:
        return None
    fallback.only(keys.FALLBACK)
    if "after_s" in fallback and "overflow_after_s" in fallback:
        fallback.refuse("is another word for after_s; give only one of them", "overflow_after_s")
    overflow = fallback.number("overflow_after_s", Fallback().after_s, keys.DELAY)
    return Fallback(
        after_s=fallback.number("after_s", overflow, keys.DELAY),
        budget_usd_per_day=fallback.number("budget_usd_per_day", None, keys.MONEY),
    )


def _breaker(table: Table) -> BreakerRule:
    default = BreakerRule()
    breaker = table.table("breaker", "{ failures = 3, reset_s = 5 }")
    if breaker is None:
        return default
    breaker.only(keys.BREAKER)
    reset_s = breaker.number("reset_s", default.reset_s, keys.SECONDS)
    max_reset_s = breaker.number("max_reset_s", max(default.max_reset_s, reset_s), keys.SECONDS)
    if max_reset_s < reset_s:
        breaker.refuse("is less than reset_s", "max_reset_s")
    return BreakerRule(breaker.whole("failures", default.failures, keys.COUNT), reset_s, max_reset_s)


def host_document(host: Host) -> dict[str, Any]:
    """The table that `read_host` would read this host from."""
    auto = host.auto
    slots = host.slots if auto is None else {"auto": True, "min": auto.min, "max": auto.max}
    table: dict[str, Any] = {"type": host.type, "slots": slots}
    if host.units:
        table["units"] = dict(host.units)
    table["serves"] = list(host.serves)
    if host.model is not None:
        table["model"] = host.model
    if own := _own_models(host):
        table["models"] = own
    if host.type in keys.MODEL_TYPES and not host.takes_calls:
        table[keys.OF_MODELS] = False
    if host.rate is not None:
        table["rate"] = given(
            requests_per_min=host.rate.requests_per_min, tokens_per_min=host.rate.tokens_per_min
        )
    if host.fallback is not None:
        table["fallback"] = given(
            after_s=host.fallback.after_s, budget_usd_per_day=host.fallback.budget_usd_per_day
        )
    if host.breaker != BreakerRule():
        rule = host.breaker
        table["breaker"] = given(failures=rule.failures, reset_s=rule.reset_s, max_reset_s=rule.max_reset_s)
    if host.ray is not None:
        table["ray"] = nodes_document(host.ray)
    return table | dict(host.options)


def given(**values: Any) -> dict[str, Any]:
    """Those that are not None: TOML has no word for nothing."""
    return {key: value for key, value in values.items() if value is not None}
