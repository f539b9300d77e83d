"""Environment variables of this process that must be set before TensorFlow is imported."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tfps.cluster.proxies import exclude_from_proxies

if TYPE_CHECKING:
    from tfps.cluster.spec import ClusterSpec

# Only without GRPC_FAIL_FAST does TensorFlow both notice a lost worker and wait for a late one. The
# coordination service reports a lost server after 7 s instead of 0.2 s.
HARMFUL_VARIABLES = ("GRPC_FAIL_FAST", "TF_PSS_ENABLE_COORDINATION_SERVICE")
# Variables that TensorFlow sets in a process that imports it, and in a chief that connects. They
# are not the user's choice: the tasks of a second cluster must start like those of the first.
WRITTEN_BY_TENSORFLOW = {
    "TF2_BEHAVIOR": "1",
    "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE": "False",
    "TF_PS_DISABLE_ASYNC_EXECUTOR_GLOBALLY": "True",
}


def prepare_process(task_type: str, spec: ClusterSpec | None = None) -> None:
    """Set this process's own variables for its role; call it before TensorFlow is imported.

    Args:
        task_type: the role.
        spec: the cluster, if it is known, whose hosts are reached without a proxy.
    """
    if spec is not None:
        exclude_from_proxies(address for _, _, address in spec.tasks())
    for name in HARMFUL_VARIABLES:
        os.environ.pop(name, None)
    if task_type == "ps":
        # Parameters are stored in the server's main memory.
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
