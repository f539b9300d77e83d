"""The variables with which a task starts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import tfps
from tfps.cluster import ClusterSpec
from tfps.launch.environment import task_environment

SPEC = ClusterSpec(jobs={"chief": ("c:1",), "worker": ("w:1", "w:2"), "ps": ("p:1",)})


def test_a_task_gets_its_role_and_no_harmful_variable() -> None:
    base = {"GRPC_FAIL_FAST": "false", "TF_PSS_ENABLE_COORDINATION_SERVICE": "1", "MINE": "x"}
    environment = task_environment(SPEC, "worker", 1, base=base)
    assert json.loads(environment["TF_CONFIG"])["task"] == {"type": "worker", "index": 1}
    assert list(json.loads(environment["TF_CONFIG"])["cluster"]) == ["chief", "worker", "ps"]
    assert environment["MINE"] == "x"
    assert environment["TFPS_PARENT_PID"] == str(os.getpid())
    assert not set(environment) & {"GRPC_FAIL_FAST", "TF_PSS_ENABLE_COORDINATION_SERVICE"}
    assert "CUDA_VISIBLE_DEVICES" not in environment


def test_servers_leave_the_gpus_to_the_workers() -> None:
    assert task_environment(SPEC, "ps", 0, base={})["CUDA_VISIBLE_DEVICES"] == "-1"
    extra = {"CUDA_VISIBLE_DEVICES": "2"}
    assert task_environment(SPEC, "ps", 0, base={}, extra=extra)["CUDA_VISIBLE_DEVICES"] == "2"


def test_a_child_finds_this_package() -> None:
    home = str(Path(tfps.__file__).resolve().parent.parent)
    path = task_environment(SPEC, "ps", 0, base={"PYTHONPATH": "mine"})["PYTHONPATH"]
    assert path in (f"{home}{os.pathsep}mine", "mine")
    again = task_environment(SPEC, "ps", 0, base={"PYTHONPATH": path})["PYTHONPATH"]
    assert again == path
