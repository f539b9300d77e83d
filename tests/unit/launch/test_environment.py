"""The variables with which a task starts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import tfps
from tfps.cluster import ClusterSpec, PortLease
from tfps.launch.environment import common_environment, task_environment
from tfps.launch.fork_server import import_time_variables

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


def test_what_tensorflow_writes_in_a_chief_is_no_wish_of_the_user() -> None:
    """A second cluster's tasks are those of the first, and start from the same fork server."""
    before = {"TF_DETERMINISTIC_OPS": "1"}
    written = {
        "TF2_BEHAVIOR": "1",
        "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE": "False",
        "TF_PS_DISABLE_ASYNC_EXECUTOR_GLOBALLY": "True",
        PortLease.REUSE_PORT_VARIABLE: "true",  # by the first cluster
    }
    first, second = common_environment(base=before), common_environment(base=before | written)
    assert first == second
    assert import_time_variables(first) == import_time_variables(second)
    other = common_environment(base={"TF2_BEHAVIOR": "0"})
    assert other["TF2_BEHAVIOR"] == "0"
    assert import_time_variables(other) != import_time_variables(first)


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
