"""A change of the plant that a recorded run can be played under: what `whatif` takes, and what remedies name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Any

from penstock.config.plants import changed_plant
from penstock.model import Plant


@dataclass(frozen=True, slots=True)
class Change:
    settings: Mapping[str, str] = field(default_factory=dict)  # as `--set` takes them
    unset: tuple[str, ...] = ()  # as `--unset` does
    dispatcher: str | None = None  # another than it was, perhaps

    @property
    def changes(self) -> list[str]:
        """In words, one each."""
        said = [f"{key} = {value}" for key, value in self.settings.items()]
        said += [f"without {key}" for key in self.unset]
        return said + ([] if self.dispatcher is None else [f"dispatcher {self.dispatcher}"])

    @property
    def arguments(self) -> str:
        """As `penstock whatif` takes it on a command line."""
        told = [f"--set {quote(f'{key}={value}')}" for key, value in self.settings.items()]
        told += [f"--unset {quote(key)}" for key in self.unset]
        return " ".join(told + ([] if self.dispatcher is None else [f"--dispatcher {self.dispatcher}"]))

    def changed(self, plant: Plant) -> Plant:
        plant = changed_plant(plant, self.settings, self.unset)
        return (
            plant if self.dispatcher is None else replace(plant, thread_per_kind=self.dispatcher == "threads")
        )

    def change_as_record(self) -> dict[str, Any]:
        return {"set": dict(self.settings), "unset": list(self.unset), "dispatcher": self.dispatcher}
