"""Options with which TensorFlow prepares the graphs that a parameter server runs in sessions."""

from __future__ import annotations

import tensorflow as tf

# Inlines functions, folds constants and removes redundant control edges. With all optimizers, and a
# second round, a server's start with synchronous training took 8 s of CPU instead of 4, and no step
# became shorter.
GRAPH_OPTIMIZERS = ("function", "constfold", "dependency")


def session_options(device: str, *, timeout_s: float = 0.0) -> tf.compat.v1.ConfigProto:
    """Return the options of a session that runs on one server.

    Args:
        device: the server; the session waits for no other task.
        timeout_s: the timeout of each call; 0 for none.
    """
    job = tf.DeviceSpec.from_string(device)
    options = tf.compat.v1.ConfigProto(
        device_filters=[f"/job:{job.job}/task:{job.task}"],
        operation_timeout_in_ms=int(timeout_s * 1000),
    )
    rewriting = options.graph_options.rewrite_options
    rewriting.optimizers.extend(GRAPH_OPTIMIZERS)
    rewriting.meta_optimizer_iterations = rewriting.ONE
    rewriting.disable_tfg_optimizer = True
    return options
