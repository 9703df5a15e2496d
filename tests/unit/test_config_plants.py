"""A recorded plant under other settings: checked like a file, one line per problem (E3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.config import parse
from penstock.config.plants import changed_plant
from penstock.errors import ConfigError
from penstock.model import Host, Lane, Plant

TOML = """
aging_s = 60
[retry]
retries = 4
[prices]
small = { input = 1.0, output = 2.0 }
[hosts.fenrir]
type = "openai"
url = "http://fenrir:1234/v1"
model = "small"
slots = 2
units = { vram_gb = 24 }
rate = { requests_per_min = 60 }
[hosts.cloud]
type = "openai"
url = "https://cloud.example/v1"
slots = { auto = true, min = 2, max = 8 }
fallback = { after_s = 5, budget_usd_per_day = 1.5 }
breaker = { failures = 2, reset_s = 1 }
[lanes.chat]
max_running = 4
reserve = { fenrir = 1 }
budget_usd_per_day = 2.0
[gates.cpu]
probe = "psutil:cpu_percent"
max = 90
holds = { hosts = ["fenrir"] }
[gates.room]
lane = "chat"
max_running = 3
holds = { kinds = ["general"] }
"""


def recorded() -> Plant:
    """As the store keeps it: without what belongs to adapters."""
    plant = parse(TOML).plant
    return replace(plant, hosts=tuple(replace(host, options={}) for host in plant.hosts))


def test_nothing_changed_is_the_same_plant() -> None:
    assert changed_plant(recorded(), {}) == recorded()


def test_a_plant_that_the_store_kept_is_the_same_plant() -> None:
    """Its amounts come back as fractions, and slots stay whole."""
    kept = replace(recorded(), lanes=(Lane("chat", reserve={"fenrir": {"slots": 1.0}}), Lane("default")))
    assert changed_plant(kept, {}).lanes == kept.lanes


@pytest.mark.parametrize("key", ['hosts."celery@gpu 1".slots', "hosts.celery@gpu 1.slots"])
def test_names_of_another_system_can_be_changed(key: str) -> None:
    hosts = (Host("celery@gpu 1", "simulated", serves=("a/b",)), Host("celery@gpu 1.x", "simulated"))
    plant = Plant(hosts, (Lane("default"), Lane("my queue")))
    changed = changed_plant(plant, {key: "4", "lanes.my queue.max_running": "2"}, ["hosts.celery@gpu 1.x"])
    assert changed.hosts == (replace(hosts[0], slots=4),)
    assert changed.lanes[1].max_running == 2


def test_an_unknown_name_is_still_told() -> None:
    plant = Plant((Host("celery@gpu1", "simulated"),))
    with pytest.raises(ConfigError, match="is not a key like"):
        changed_plant(plant, {"hosts.celery@gpu2.slots": "4"})
    with pytest.raises(ConfigError, match="did you mean 'celery@gpu1'"):
        changed_plant(plant, {'hosts."celery@gpu2".slots': "4"})


def test_keys_are_set_and_left_out() -> None:
    settings = {
        "hosts.fenrir.slots": "4",
        "aging_s": "30",
        "hosts.new.type": "simulated",
        "hosts.new.slots": "3",
        "retry.retries": "0",
        "prices.small.input": "9.5",
    }
    plant = changed_plant(recorded(), settings, ["gates.cpu", "lanes.chat.max_running", "hosts.fenrir.rate"])
    fenrir, _, new = plant.hosts
    assert (fenrir.slots, fenrir.rate, fenrir.prices["small"].input) == (4, None, 9.5)
    assert (new.name, new.slots, plant.aging_s, plant.retry.retries) == ("new", 3, 30.0, 0)
    assert [gate.name for gate in plant.gates] == ["room"]
    assert plant.lanes[0].max_running is None


@pytest.mark.parametrize(
    ("settings", "unset", "told"),
    [
        ({"hosts.fenri.slots": "4"}, [], "--set: hosts.fenri.slots: no host 'fenri'; did you mean 'fenrir'?"),
        ({"hosts.fenrir.slts": "4"}, [], "--set: hosts.fenrir.slts: unknown key; did you mean 'slots'?"),
        ({"hosts.fenrir.slots": "0"}, [], "--set: hosts.fenrir.slots: must be"),
        ({"store": "x.db"}, [], "--set: store: is no part of the plant; its parts: aging_s, gates"),
        ({"host.fenrir.slots": "2"}, [], "host.fenrir.slots: is no part of the plant; did you mean 'hosts'?"),
        ({}, ["gates.cp"], "--unset: gates.cp: there is nothing to leave out; did you mean 'cpu'?"),
        ({}, ["lanes.chatt.weight"], "--unset: lanes.chatt: there is nothing to leave out; did you mean 'chat'?"),
        ({}, ["hosts.fenrir.slots.min"], "--unset: hosts.fenrir.slots: there is nothing to leave out"),
        ({}, ["hosts.[x"], "--unset: 'hosts.[x': is not a key like gates.NAME"),
        ({}, ["hosts.fenrir"], "lanes.chat.reserve.fenrir: no such host"),
    ],
)  # fmt: skip
def test_each_problem_is_one_line(settings: dict[str, str], unset: list[str], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        changed_plant(recorded(), settings, unset)
    assert any(told in line for line in caught.value.problems), caught.value.problems


def test_hosts_of_plug_ins_are_taken_as_they_were() -> None:
    plant = Plant((Host("h", "somebody-s", slots=2),), (Lane("default"),))
    assert changed_plant(plant, {"hosts.h.slots": "3"}).hosts[0].slots == 3
