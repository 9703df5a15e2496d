"""E6: the manifests of deploy/ are what Kubernetes takes, fit together, and say what Penstock does.

No cluster is here: Kubernetes' own schemas are, of an old and of the newest version. KubeRay's objects are checked
where they are Kubernetes': their pod templates; and against the fields that its reference has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from penstock.config import Config, parse
from penstock.config.files import NAME
from penstock.web import door

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
KUBERNETES, KUBERAY = DEPLOY / "kubernetes", DEPLOY / "kuberay"
VERSIONS = ("1.30", kubernetes_validate.latest_version())
NAMESPACE = "penstock"

# https://ray-project.github.io/kuberay/reference/api/: of RayClusterSpec, HeadGroupSpec and WorkerGroupSpec, those
# that are used here; with * what must be there.
RAY_FIELDS = {
    "cluster": {"rayVersion", "headGroupSpec*", "workerGroupSpecs"},
    "head": {"template*", "rayStartParams", "resources", "labels"},
    "workers": {
        *("groupName*", "minReplicas*", "maxReplicas*", "template*"),
        *("replicas", "rayStartParams", "resources", "labels"),
    },
}

Object = dict[str, Any]


def objects(folder: Path) -> list[Object]:
    return [
        one for path in sorted(folder.glob("*.yaml")) for one in yaml.safe_load_all(path.read_text()) if one
    ]


def the(kind: str, name: str = "penstock", folder: Path = KUBERNETES) -> Object:
    (found,) = [one for one in objects(folder) if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def validate(one: Object) -> None:
    for number in VERSIONS:
        kubernetes_validate.validate(one, number, strict=True)


def pods(folder: Path) -> Iterator[tuple[str, Object]]:
    """The spec of every pod that would be made, by the name of what makes it."""
    for one in objects(folder):
        name = f"{one['kind']} {one['metadata']['name']}"
        if one["kind"] == "Pod":
            yield name, one["spec"]
        elif one["kind"] == "RayCluster":
            for group in (one["spec"]["headGroupSpec"], *one["spec"]["workerGroupSpecs"]):
                yield f"{name} {group.get('groupName', 'head')}", group["template"]["spec"]
        elif "template" in one.get("spec", {}):
            yield name, one["spec"]["template"]["spec"]


def penstock_container() -> Object:
    (container,) = the("Deployment")["spec"]["template"]["spec"]["containers"]
    found: Object = container
    return found


def configs() -> dict[str, str]:
    """Every penstock.toml that is deployed, by where it stands."""
    found = {path.relative_to(DEPLOY).as_posix(): path.read_text() for path in DEPLOY.rglob(NAME)}
    for folder in (KUBERNETES, KUBERAY):
        found[f"{folder.name}/config.yaml"] = the("ConfigMap", folder=folder)["data"][NAME]
    return found


def read(text: str) -> Config:
    return parse(text, Path("/etc/penstock") / NAME)


# ---- by Kubernetes' own words


@pytest.mark.parametrize(
    "one", objects(KUBERNETES), ids=lambda one: f"{one['kind']}-{one['metadata']['name']}"
)
def test_kubernetes_knows_every_field(one: Object) -> None:
    validate(one)
    place = one["metadata"].get("namespace", one["metadata"]["name"])
    assert place == NAMESPACE


def test_a_wrong_field_is_found() -> None:
    deployment = the("Deployment")
    deployment["spec"]["replica"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(deployment)


def test_pods_of_a_ray_cluster_are_pods() -> None:
    for name, spec in pods(KUBERAY):
        head = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name.split()[-1]}}
        validate({**head, "template": {"spec": spec}})
    validate(the("ConfigMap", folder=KUBERAY))
    validate(the("NetworkPolicy", "penstock-ray", KUBERAY))


def test_a_ray_cluster_has_the_fields_of_its_reference() -> None:
    cluster = the("RayCluster", "penstock-ray", KUBERAY)
    assert cluster["apiVersion"] == "ray.io/v1"
    spec = cluster["spec"]
    parts = [("cluster", spec), ("head", spec["headGroupSpec"])]
    for what, part in [*parts, *(("workers", group) for group in spec["workerGroupSpecs"])]:
        known = {field.rstrip("*") for field in RAY_FIELDS[what]}
        needed = {field[:-1] for field in RAY_FIELDS[what] if field.endswith("*")}
        assert needed <= set(part) <= known, what
        for texts in (part.get("resources", {}), part.get("labels", {}), part.get("rayStartParams", {})):
            assert all(isinstance(value, str) for value in texts.values()), what


@pytest.mark.parametrize("folder", [KUBERNETES, KUBERAY], ids=lambda folder: folder.name)
def test_pods_have_no_more_rights_than_a_restricted_namespace_gives(folder: Path) -> None:
    labels = the("Namespace")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    for name, spec in pods(folder):
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in spec["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False, name
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["limits"]["memory"], name


# ---- that they fit together


def test_what_is_named_is_there() -> None:
    names = {(one["kind"], one["metadata"]["name"]) for one in objects(KUBERNETES)}
    for name, spec in pods(KUBERNETES):
        mounted = {mount["name"] for container in spec["containers"] for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in spec.get("volumes", ())}
        claims = {"data"} if name.startswith("StatefulSet") else set()
        assert mounted == set(volumes) | claims, name
        for volume in volumes.values():
            assert "configMap" not in volume or ("ConfigMap", volume["configMap"]["name"]) in names
        for container in spec["containers"]:
            for source in container.get("envFrom", ()):
                assert ("Secret", source["secretRef"]["name"]) in names
    (backend,) = [path["backend"]["service"] for path in the("Ingress")["spec"]["rules"][0]["http"]["paths"]]
    ports = {port["name"] for port in the("Service", backend["name"])["spec"]["ports"]}
    assert backend["port"]["name"] in ports


def test_services_and_budgets_mean_the_pods_of_the_deployment() -> None:
    deployment = the("Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == labels
    assert the("Service")["spec"]["selector"] == labels
    assert the("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    (apart,) = deployment["template"]["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert apart["podAffinityTerm"]["labelSelector"]["matchLabels"] == labels
    assert deployment["replicas"] == 2
    assert the("PodDisruptionBudget")["spec"]["minAvailable"] < deployment["replicas"], (
        "a machine can be emptied"
    )
    assert (
        the("StatefulSet", "postgres")["spec"]["serviceName"]
        == the("Service", "postgres")["metadata"]["name"]
    )


def test_only_penstock_reaches_the_database_and_the_cluster() -> None:
    (rule,) = the("NetworkPolicy", "postgres")["spec"]["ingress"]
    (who,) = rule["from"][0]["podSelector"]["matchExpressions"]
    labels = the("Deployment")["spec"]["template"]["metadata"]["labels"]
    toolbox = the("Pod", "penstock-toolbox")["metadata"]["labels"]
    assert set(who["values"]) == {labels[who["key"]], toolbox[who["key"]]}
    policy = the("NetworkPolicy", "penstock-ray", KUBERAY)["spec"]
    cluster = {"ray.io/cluster": the("RayCluster", "penstock-ray", KUBERAY)["metadata"]["name"]}
    assert policy["podSelector"]["matchLabels"] == cluster
    own, ours = (rule["from"][0]["podSelector"]["matchLabels"] for rule in policy["ingress"])
    assert (own, ours) == (cluster, labels)


def test_the_password_is_in_the_secret_and_nowhere_else() -> None:
    assert the("Secret")["stringData"] == {"PGPASSWORD": "change-me"}
    database = the("StatefulSet", "postgres")["spec"]["template"]["spec"]["containers"][0]
    (password,) = [one for one in database["env"] if one["name"] == "POSTGRES_PASSWORD"]
    assert password["valueFrom"]["secretKeyRef"] == {"name": "penstock", "key": "PGPASSWORD"}
    for where, text in configs().items():
        assert re.search(r'^store = "postgresql://penstock@', text, re.MULTILINE), where


# ---- that they say what Penstock does


def test_probes_ask_what_penstock_answers() -> None:
    container = penstock_container()
    (port,) = container["ports"]
    for kind, path in (("startup", "/health/live"), ("liveness", "/health/live"), ("readiness", "/health")):
        probe = container[f"{kind}Probe"]["httpGet"]
        assert (probe["path"], probe["port"]) == (path, port["name"])
        assert path in door.OPEN, "a probe has no token"


def test_a_pod_tells_the_other_its_own_address() -> None:
    container = penstock_container()
    (address,) = [one for one in container["env"] if one["name"] == "POD_IP"]
    assert address["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
    flag, setting, command = container["args"]
    assert (flag, command) == ("--set", "serve")
    key, _, value = setting.partition("=")
    told = value.replace("$(POD_IP)", "10.1.2.3")
    assert key == "server.advertise"
    assert read(
        the("ConfigMap")["data"][NAME].replace("[server]", f'[server]\nadvertise = "{told}"')
    ).server.advertise


def test_the_drain_fits_into_the_time_that_kubernetes_gives() -> None:
    """As `penstock systemd` does it: a first signal, time to finish, a second one that puts back the rest."""
    spec = the("Deployment")["spec"]["template"]["spec"]
    shell, _, script = penstock_container()["lifecycle"]["preStop"]["exec"]["command"]
    drained = re.fullmatch(r"kill -TERM 1; sleep (\d+)", script)
    assert shell == "sh"
    assert drained is not None
    assert spec["terminationGracePeriodSeconds"] - int(drained[1]) >= 60
    assert not spec.get("shareProcessNamespace"), "process 1 would be another"


@pytest.mark.parametrize("where", sorted(configs()))
def test_the_configs_can_be_read(where: str) -> None:
    config = read(configs()[where])
    assert (config.server.host, config.server.port) == ("0.0.0.0", 8787)
    assert config.plant.hosts


def test_nodes_have_what_the_hosts_ask_for() -> None:
    config = read(the("ConfigMap", folder=KUBERAY)["data"][NAME])
    groups = the("RayCluster", "penstock-ray", KUBERAY)["spec"]["workerGroupSpecs"]
    asking = [host for host in config.plant.hosts if host.ray is not None]
    assert asking
    for host in asking:
        assert host.ray is not None
        (group,) = [one for one in groups if host.ray.labels.items() <= one["labels"].items()]
        limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        has = {
            "GPU": float(limits.get("nvidia.com/gpu", 0)),
            **{k: float(v) for k, v in group.get("resources", {}).items()},
        }
        for name, amount in host.ray.resources.items():
            assert has[name] * group["replicas"] >= amount * host.slots, f"{host.name}: {name}"
        assert host.ray.num_cpus * host.slots <= float(limits["cpu"]) * group["replicas"]


def test_the_cluster_is_found_by_the_name_that_the_operator_gives_it() -> None:
    cluster = the("RayCluster", "penstock-ray", KUBERAY)
    address = read(the("ConfigMap", folder=KUBERAY)["data"][NAME]).engine.address
    ports = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["ports"]
    (client,) = [port["containerPort"] for port in ports if port["name"] == "client"]
    assert address == f"ray://{cluster['metadata']['name']}-head-svc:{client}"


def test_penstock_and_the_nodes_have_one_ray() -> None:
    """Ray refuses a client of another version; the suite runs with the one that is deployed."""
    cluster = the("RayCluster", "penstock-ray", KUBERAY)["spec"]
    base = re.search(
        r"^ARG BASE=docker.io/rayproject/ray:(.+)-py311$", (KUBERAY / "Containerfile").read_text(), re.M
    )
    assert base is not None
    assert cluster["rayVersion"] == base[1]
    assert base[1].split(".")[:2] == version("ray").split(".")[:2]
    images = {c["image"] for _, spec in pods(KUBERAY) for c in spec["containers"]}
    assert len(images) == 1
