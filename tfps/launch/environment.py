"""The environment variables of every task, set before TensorFlow is imported."""

from __future__ import annotations

import json
import os
import site
from collections.abc import Mapping
from pathlib import Path

import tfps
from tfps.cluster import SUPERVISED, ClusterSpec, PortLease
from tfps.cluster.process_environment import HARMFUL_VARIABLES, WRITTEN_BY_TENSORFLOW
from tfps.cluster.timeout import CHIEF_TIMEOUT_S
from tfps.scheduler.settings import VARIABLES as SCHEDULER_VARIABLES

PARENT_PID = "TFPS_PARENT_PID"  # the process whose end ends this one too
LOG_FILE = "TFPS_LOG_FILE"  # where a chief's raw lines go
TASK_NAME = "TFPS_TASK"


def task_environment(
    spec: ClusterSpec,
    task_type: str,
    task_index: int,
    *,
    base: Mapping[str, str] | None = None,
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the environment of a task that runs on this machine as a child of this process.

    Args:
        spec: the cluster.
        task_type: the type of the task.
        task_index: the index of the task.
        base: the variables to start from; `os.environ` if None.
        extra: the user's variables, which override those of tfps.

    Example:

    >>> spec = ClusterSpec(jobs={"chief": ("c:1",), "worker": ("w:1",), "ps": ("p:1",)})
    >>> task_environment(spec, "ps", 0, base={})["TFPS_TASK"]
    'ps 0'
    """
    environment = common_environment(base=base)
    environment |= {
        "TF_CONFIG": json.dumps(spec.tf_config(task_type, task_index)),
        TASK_NAME: f"{task_type} {task_index}",
    }
    if task_type == "ps":
        environment["CUDA_VISIBLE_DEVICES"] = "-1"  # parameters live in the server's main memory
    return environment | dict(extra or {})


def common_environment(
    *, base: Mapping[str, str] | None = None, extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the variables that all tasks on this machine have in common.

    Args:
        base: the variables to start from; `os.environ` if None.
        extra: the user's variables, which override those of tfps.
    """
    environment = dict(os.environ if base is None else base)
    for name in (*HARMFUL_VARIABLES, *SCHEDULER_VARIABLES):
        environment.pop(name, None)
    for name, value in WRITTEN_BY_TENSORFLOW.items():
        if environment.get(name) == value:
            del environment[name]
    environment |= {
        PARENT_PID: str(os.getpid()),
        SUPERVISED: "1",
        # The parent's end ends the task; until then a notebook may take hours to connect.
        CHIEF_TIMEOUT_S: "inf",
        # A printed line is in the log at once, even if the task is killed after it.
        "PYTHONUNBUFFERED": "1",
        # The lease of the port stays while the task listens on it.
        PortLease.REUSE_PORT_VARIABLE: "true",
        # Several tasks share the machine's GPUs: none may take all the memory at its start.
        "TF_FORCE_GPU_ALLOW_GROWTH": environment.get("TF_FORCE_GPU_ALLOW_GROWTH", "true"),
    }
    environment["PYTHONPATH"] = _import_path(environment.get("PYTHONPATH", ""))
    return environment | dict(extra or {})


def _import_path(current: str) -> str:
    """Return a PYTHONPATH under which a child finds this very package, installed or not."""
    home = str(Path(tfps.__file__).resolve().parent.parent)
    installed = {*site.getsitepackages(), site.getusersitepackages()}
    entries = [entry for entry in current.split(os.pathsep) if entry]
    if home in installed or home in entries:
        return os.pathsep.join(entries)
    return os.pathsep.join([home, *entries])
