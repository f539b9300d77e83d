"""Variables of this process that have to be right before TensorFlow is imported."""

from __future__ import annotations

import os

# Unset is the only setting of GRPC_FAIL_FAST with which a lost worker is noticed and a late one is
# waited for; the coordination service reports a lost server 7 s instead of 0.2 s after the fact.
HARMFUL_VARIABLES = ("GRPC_FAIL_FAST", "TF_PSS_ENABLE_COORDINATION_SERVICE")
# What TensorFlow writes into the environment of a process that imports it and of a chief that
# connects. It is no wish of the user's: the tasks of a second cluster shall be those of the first.
WRITTEN_BY_TENSORFLOW = {
    "TF2_BEHAVIOR": "1",
    "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE": "False",
    "TF_PS_DISABLE_ASYNC_EXECUTOR_GLOBALLY": "True",
}


def prepare_process(task_type: str) -> None:
    """Set this process's own variables for its role; call it before TensorFlow is imported."""
    for name in HARMFUL_VARIABLES:
        os.environ.pop(name, None)
    if task_type == "ps":
        # Parameters live in the server's main memory.
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
