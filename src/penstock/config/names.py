"""The names that clients of the front door may give as `model`, and what each of them asks of the hosts.

A name is an alias of [models], a model of some host, a kind that model hosts serve, `auto` for any of them, a
council (`council:NAME`, `council:NAME:MODE`), or, where a host takes any model, whatever that host's server knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.config.councils import MODEL_PREFIX, Council, Mode
from penstock.config.document import Config
from penstock.config.keys import AUTO_MODEL, MODEL_TYPES
from penstock.config.problems import meant, nearest
from penstock.model import ANY_MODEL, CHAT_CALL

EVERY_NAME = "*"  # as an alias: names that nothing else is known by


class CouncilAsked(NamedTuple):
    """What a name of a council stands for; without a mode, the one that its config says."""

    council: Council
    mode: Mode | None


class Names:
    def __init__(self, config: Config, councils: Iterable[Council] = ()) -> None:
        """`councils` are those that may be asked by these names: attempts ask none."""
        self._aliases = config.models
        hosts = [host for host in config.plant.hosts if host.serves_kind(CHAT_CALL)]
        self._owners: dict[str, list[str]] = {}
        for host in hosts:
            for name in host.models:
                if name != ANY_MODEL:
                    self._owners.setdefault(name, []).append(host.name)
        own = {host.model for host in hosts}
        self._stand_ins = {AUTO_MODEL, *(kind for host in hosts for kind in host.serves)} - own
        self.councils = {name: asked for one in councils for name, asked in _names_of(one).items()}
        self._owners |= {name: [asked.council.kind] for name, asked in self.councils.items()}
        self.has_hosts = bool(hosts or self.councils)
        self._takers = [host.name for host in hosts if ANY_MODEL in host.models]
        self._closed = [
            host for host in config.plant.hosts if host.type in MODEL_TYPES and not host.takes_calls
        ]

    def asked(self, name: str | None) -> str | None:
        """What the hosts are asked for; None when nobody knows the name. No name at all is any model."""
        name = self.meant(name or AUTO_MODEL)
        if name in self._owners:
            return name
        if EVERY_NAME in self._aliases:
            name = self.meant(self._aliases[EVERY_NAME])
            if name in self._owners:
                return name
        return name if self._takers and not name.startswith(MODEL_PREFIX) else None

    def meant(self, name: str) -> str:
        """What an alias stands for, whether or not a host has it; any other name is what it is."""
        while (
            name in self._aliases and name != EVERY_NAME
        ):  # that none leads to itself is checked in the config
            name = self._aliases[name]
        return name

    def known(self) -> dict[str, list[str]]:
        """Every name that leads somewhere, with the hosts it leads to."""
        names = dict(self._owners)
        for alias in self._aliases:
            asked = self.asked(alias)
            if alias != EVERY_NAME and asked is not None:
                names.setdefault(alias, self._owners.get(asked, []))
        return names

    def listed(self, told: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """As `known`, with the models that hosts told of themselves, where a host takes any."""
        names = {name: list(hosts) for name, hosts in self.known().items()}
        for host in self._takers:
            for name in told.get(host, ()):
                if host not in names.setdefault(name, []):
                    names[name].append(host)
        return names

    def astray(self) -> dict[str, str]:
        """Aliases that lead nowhere, with what is wrong."""
        return {name: self.unknown(name) for name in self._aliases if self.asked(name) is None}

    def unknown(self, name: str) -> str:
        """What to say to one that asked for a name nobody knows."""
        closed = [
            host.name for host in self._closed if host.has_model(self.meant(name)) or not self.has_hosts
        ]
        if closed:
            where = closed[0]
            told = f"the model {name[:200]!r} is on host {where}, which answers no calls"
            return f"{told}; remove calls = false from hosts.{where}"
        if not self.has_hosts:
            return "no host has a model; add one of type openai or local to penstock.toml"
        if name in self._aliases:
            return f"the model {name[:200]!r} stands for {self.meant(name)[:200]!r}, which no host has"
        known = self.known()
        if not nearest(name, known):  # then all are listed: kinds and `auto` are no models
            known = {one: hosts for one, hosts in known.items() if one not in self._stand_ins} or known
        return f"the model {name[:200]!r} does not exist{meant(name, known, 'models')}"


def _names_of(council: Council) -> dict[str, CouncilAsked]:
    name = MODEL_PREFIX + council.name
    with_modes = {f"{name}:{mode}": CouncilAsked(council, mode) for mode in Mode}
    return {name: CouncilAsked(council, None), **with_modes}
