"""docker/compose.yaml: one cluster, seen in the same way by each of its four tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tfps.cluster import ClusterSpec

TASKS = {"chief": ("chief", 0), "worker-0": ("worker", 0), "worker-1": ("worker", 1)}
TASKS["ps-0"] = ("ps", 0)


@pytest.fixture(scope="module")
def compose(root: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((root / "docker/compose.yaml").read_text())
    return loaded


@pytest.fixture(scope="module")
def specs(compose: dict[str, Any]) -> dict[str, ClusterSpec]:
    return {
        name: ClusterSpec.from_tf_config(service["environment"]["TF_CONFIG"])
        for name, service in compose["services"].items()
    }


def test_the_services_are_the_tasks(specs: dict[str, ClusterSpec]) -> None:
    assert {name: (spec.task_type, spec.task_index) for name, spec in specs.items()} == TASKS


def test_every_service_knows_the_same_cluster(compose: dict[str, Any]) -> None:
    clusters = [
        json.loads(service["environment"]["TF_CONFIG"])["cluster"]
        for service in compose["services"].values()
    ]
    assert all(cluster == clusters[0] for cluster in clusters)


def test_a_task_is_addressed_by_its_services_name(specs: dict[str, ClusterSpec]) -> None:
    for name, (task_type, index) in TASKS.items():
        for spec in specs.values():
            assert spec.jobs[task_type][index] == f"{name}:2222"


def test_every_service_runs_the_same_command_of_the_image(compose: dict[str, Any]) -> None:
    services = compose["services"].values()
    assert {service["image"] for service in services} == {"tfps"}
    assert {tuple(service["command"]) for service in services} == {("train",)}


def test_the_image_is_built_from_this_checkout(compose: dict[str, Any], root: Path) -> None:
    build = compose["services"]["chief"]["build"]
    context = (root / "docker" / build["context"]).resolve()
    assert context == root
    assert (context / build["dockerfile"]).is_file()


def test_only_the_chief_writes_results(compose: dict[str, Any], root: Path) -> None:
    mounted = {name: service.get("volumes", []) for name, service in compose["services"].items()}
    assert mounted == {
        "chief": ["runs:/home/tfps/runs"],
        "worker-0": [],
        "worker-1": [],
        "ps-0": [],
    }
    assert "runs" in compose["volumes"]
    # A relative output folder `runs` of the job lands in the volume.
    assert "WORKDIR /home/tfps\n" in (root / "docker/Dockerfile").read_text()
