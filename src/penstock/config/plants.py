"""A plant with some keys set or left out, checked like a file: what `whatif` replays a run under.

The plant need not be that of today's file: a recorded one is turned back into a document first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.config.document import Config, as_document, read_document
from penstock.config.keys import AVAILABLE, HostTypes
from penstock.config.problems import meant
from penstock.config.settings import apply_settings, leave_out
from penstock.errors import ConfigError
from penstock.model import Plant

# What a plant is made of; the other keys do not change how tasks are run.
PARTS = ("hosts", "lanes", "gates", "aging_s", "retry", "prices")


def changed_plant(
    plant: Plant, settings: Mapping[str, Any], unset: Sequence[str] = (), *, option: str = "--set"
) -> Plant:
    """This plant under settings like {"hosts.fenrir.slots": "4"}, without the keys of `unset`.

    `option` is what the user gave the settings by.
    """
    try:
        return _changed_plant(plant, settings, unset)
    except ConfigError as error:
        told = (line.removeprefix("--set: ") for line in error.problems)
        raise ConfigError(
            [f"{option}: {to}" if to != line else line for to, line in zip(told, error.problems, strict=True)]
        ) from None


def _changed_plant(plant: Plant, settings: Mapping[str, Any], unset: Sequence[str]) -> Plant:
    _check_parts("--set", settings)
    _check_parts("--unset", unset)
    prices = {model: price for host in plant.hosts for model, price in host.prices.items()}
    document = leave_out(as_document(Config(plant=plant, prices=prices)), unset)
    document, paths = apply_settings(document, settings)
    # Hosts of plug-ins were checked when they ran; their options are not kept with the plant.
    types: HostTypes = {**{host.type: None for host in plant.hosts}, **AVAILABLE}
    changed = read_document(document, types=types, settings=paths, any_names=True).plant
    # No keys: how it was dispatched, and where attempts ran.
    return replace(changed, thread_per_kind=plant.thread_per_kind, outliving=plant.outliving)


def _check_parts(option: str, keys: Mapping[str, Any] | Sequence[str]) -> None:
    wrong = [key for key in keys if key.partition(".")[0] not in PARTS]
    if wrong:
        raise ConfigError(
            [
                f"{option}: {key}: is no part of the plant{meant(key.partition('.')[0], PARTS, 'its parts')}"
                for key in wrong
            ]
        )
