"""Variables of this process that have to be right before TensorFlow is imported."""

from __future__ import annotations

import os

# Unset is the only setting of GRPC_FAIL_FAST with which a lost worker is noticed and a late one is
# waited for; the coordination service reports a lost server 7 s instead of 0.2 s after the fact.
HARMFUL_VARIABLES = ("GRPC_FAIL_FAST", "TF_PSS_ENABLE_COORDINATION_SERVICE")


def prepare_process(task_type: str) -> None:
    """Set this process's own variables for its role; call it before TensorFlow is imported."""
    for name in HARMFUL_VARIABLES:
        os.environ.pop(name, None)
    if task_type == "ps":
        # Parameters live in the server's main memory.
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
