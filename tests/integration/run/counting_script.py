"""A training script for TensorFlow's own pair, which counts its steps on a parameter server."""

from __future__ import annotations


def counting_script(*, steps: int, first: str = "", last: str = "") -> str:
    """Python code that prints ``counted N`` as the chief and a line per step on the workers.

    Args:
        steps: how many.
        first: code that runs before TensorFlow is imported.
        last: code that runs after the steps.
    """
    return f"""
{first}
import tensorflow as tf
strategy = tf.distribute.ParameterServerStrategy(
    tf.distribute.cluster_resolver.TFConfigClusterResolver())
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    variable = tf.Variable(0.0)
@tf.function
def step():
    tf.print("a step on a worker")
    variable.assign_add(1.0)
for _ in range({steps}):
    coordinator.schedule(step)
coordinator.join()
print("counted", variable.numpy(), flush=True)
{last}
"""
