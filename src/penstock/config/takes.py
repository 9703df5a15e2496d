"""Which tasks and which calls a host takes, in words: the same wherever a host is shown and in every error.

`Plant.hosts_for` decides: tasks go by `serves`, calls by model.
"""

from __future__ import annotations

from penstock.config.keys import AUTO_MODEL, RUN_TYPES
from penstock.config.wording import some
from penstock.model import ANY_MODEL, Host

_MOST_NAMED = 8


def takes(host: Host) -> str:
    """Such as "serves translate; answers calls for qwen2.5-32b"."""
    serves = "serves every kind" if "*" in host.serves else f"serves {some(host.serves, _MOST_NAMED)}"
    if not host.models or host.type in RUN_TYPES:
        return serves
    return f"{serves}; {_answers(host)}"


def named_models(host: Host) -> list[str]:
    """The models that the config names, without `auto` and the kinds, which stand for one of them."""
    stand_ins = {ANY_MODEL, AUTO_MODEL, *host.serves} - {host.model}
    return [name for name in host.models if name not in stand_ins]


def _answers(host: Host) -> str:
    if not host.takes_calls:
        return "answers no calls"
    any_model = ANY_MODEL in host.models
    return f"answers calls for {'any model' if any_model else some(named_models(host), _MOST_NAMED)}"
