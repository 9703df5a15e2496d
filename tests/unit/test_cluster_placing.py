"""E6: which nodes a host's workers go to, in words that Ray takes."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.diagnosis.why.remedies import Case, remedies
from penstock.engine.cluster.remote import RemoteHost, fits_nowhere
from penstock.model import Host, Plant, RayNodes


def remote(nodes: RayNodes | None) -> RemoteHost:
    return RemoteHost(Host("h", "command", slots=2, ray=nodes), "m:f")


@pytest.mark.parametrize(
    ("nodes", "options"),
    [
        (None, {"num_cpus": 0.0, "scheduling_strategy": "SPREAD"}),
        (RayNodes({"GPU": 1.0}), {"num_cpus": 0.0, "num_gpus": 1.0}),
        (
            RayNodes({"GPU": 0.5, "memory": 1e9, "fast": 2.0}, {"pool": "gpu"}, 2.0),
            {
                "num_cpus": 2.0,
                "num_gpus": 0.5,
                "memory": 1e9,
                "resources": {"fast": 2.0},
                "label_selector": {"pool": "gpu"},
            },
        ),
    ],
)
def test_ray_takes_what_it_is_told(nodes: RayNodes | None, options: dict[str, Any]) -> None:
    from ray._common.ray_option_utils import validate_actor_options

    told = remote(nodes).options()
    assert told == options
    validate_actor_options(told, in_options=True)  # raises what Ray would raise when the worker is hired


def test_a_node_is_fit_by_its_own_names() -> None:
    asking = remote(RayNodes({"GPU": 1.0, "fast": 1.0}, {"pool": "gpu"}))
    assert asking.fits({"CPU": 4.0, "GPU": 1.0, "fast": 1.0}, {"pool": "gpu"})
    assert not asking.fits({"CPU": 4.0, "fast": 1.0}, {"pool": "gpu"})
    assert not asking.fits({"CPU": 4.0, "GPU": 1.0, "fast": 1.0}, {"pool": "cpu"})


def test_who_fits_nowhere_is_told_so_in_words() -> None:
    asking = remote(RayNodes({"GPU": 1.0, "fast": 0.5}, {"pool": "gpu"}, num_cpus=2.0))
    wants = "waits for a Ray node with num_cpus = 2, GPU = 1, fast = 0.5, label pool = gpu"
    helps = "start one, or change hosts.h.ray"
    assert fits_nowhere(asking, 3) == f"{wants}; none of the 3 there are has: {helps}"
    assert fits_nowhere(asking, 1) == f"{wants}; the only one has not: {helps}"
    assert fits_nowhere(asking, 0) == "the Ray cluster has no node; start one"


def test_what_would_help_is_known_from_those_words() -> None:
    """And `penstock check`, which would say the same, need not be asked."""
    asking = remote(RayNodes({"GPU": 1.0}, {"pool": "in(a; b)"}))
    for nodes in (1, 3):
        told = remedies("host-down", Plant(), Case(fits_nowhere(asking, nodes)))[0].text
        assert told == "a Ray node with GPU = 1, label pool = in(a; b), or less asked by hosts.h.ray"
    told = remedies("host-down", Plant(), Case(fits_nowhere(asking, 0)))[0].text
    assert told.startswith("a node of the Ray cluster")
    for detail in ("refused", "waits for a Ray node with GPU = 1; none of", ""):
        assert "penstock check" in remedies("host-down", Plant(), Case(detail))[0].text
