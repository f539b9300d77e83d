"""`training.loop = "custom"`: the same job through `ClusterCoordinator.schedule`.

The coordinator draws one permutation per epoch and schedules executions; each names the positions
of its examples, and every worker has the arrays. So each example is used once per epoch, whichever
worker takes an execution, and one that a lost worker leaves behind is simply scheduled again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.config import JobConfig
from tfps.job.curves import Curves
from tfps.job.inputs import Inputs
from tfps.strategy.coordinator import ClusterCoordinator
from tfps.training.progress import ClusterProgbar


def train_with_custom_loop(strategy: Any, model: Any, inputs: Inputs, config: JobConfig) -> Curves:
    """Train a compiled model step by step and return its curves.

    Args:
        strategy: a `tfps.ParameterServerStrategy`.
        model: made and compiled in its scope; its loss and optimizer are used.
        inputs: what to train on.
        config: epochs, batch size, steps per execution, seed.
    """
    coordinator = ClusterCoordinator(strategy)
    with strategy.scope():
        model.optimizer.build(model.trainable_variables)
    arrays = iter(coordinator.create_per_worker_dataset(_arrays(inputs)))
    execution = make_execution(strategy, model)
    random = np.random.default_rng(config.training.seed)
    curves = Curves(loss=(), accuracy=())
    for epoch in range(config.training.epochs):
        print(f"Epoch {epoch + 1}/{config.training.epochs}")
        steps = inputs.steps_per_epoch(config.data.batch_size)
        progress = ClusterProgbar(strategy, target=steps)
        order = random.permutation(len(inputs.y_train))
        totals = [
            coordinator.schedule(execution, args=(arrays, tf.constant(positions)))
            for positions in cut(
                order,
                batch_size=config.data.batch_size,
                steps_per_execution=config.training.steps_per_execution,
            )
        ]
        loss, accuracy, examples = _follow(totals, progress)
        with progress.during("validation"):
            validation = _validate(model, inputs)
        progress.update(
            steps,
            [("loss", loss), ("accuracy", accuracy), *validation.items()],
            finalize=True,
        )
        curves = curves.with_epoch(
            loss=loss, accuracy=accuracy, validation=validation, examples=examples
        )
    coordinator.join()
    return curves


def make_execution(strategy: Any, model: Any) -> Callable[[Any, Any], Any]:
    """Return the function that a worker runs: several steps, each on the examples of one row.

    Args:
        strategy: runs each step.
        model: compiled.
    """

    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = model.compute_loss(images, labels, logits)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        hits = tf.equal(tf.argmax(logits, axis=1, output_type=labels.dtype), labels)
        count = tf.cast(tf.size(labels), tf.float32)
        return tf.stack([loss * count, tf.reduce_sum(tf.cast(hits, tf.float32)), count])

    @tf.function(reduce_retracing=True)
    def execution(arrays: Any, positions: Any) -> Any:
        images, labels = next(arrays)
        totals = tf.zeros([3])
        for row in positions:
            batch = (tf.gather(images, row), tf.gather(labels, row))
            totals += strategy.run(step, args=batch)
        # The number of steps travels in the same vector: one output is one message.
        return tf.concat([totals, [tf.cast(tf.shape(positions)[0], tf.float32)]], axis=0)

    return execution


def cut(order: np.ndarray, *, batch_size: int, steps_per_execution: int) -> Iterator[np.ndarray]:
    """Cut a permutation into executions: rows of one batch each, the last batch may be smaller.

    Args:
        order: positions of examples.
        batch_size: examples per step.
        steps_per_execution: rows per execution.

    Example:

    >>> [rows.shape for rows in cut(np.arange(10), batch_size=2, steps_per_execution=3)]
    [(3, 2), (2, 2)]
    >>> [rows.shape for rows in cut(np.arange(5), batch_size=2, steps_per_execution=3)]
    [(2, 2), (1, 1)]
    """
    full = len(order) // batch_size
    rows = order[: full * batch_size].reshape(full, batch_size)
    for first in range(0, full, steps_per_execution):
        yield rows[first : first + steps_per_execution]
    if len(order) > full * batch_size:
        yield order[np.newaxis, full * batch_size :]


def _arrays(inputs: Inputs) -> Callable[[], Any]:
    def dataset() -> Any:
        arrays = (inputs.x_train, inputs.y_train.astype(np.int64))
        return tf.data.Dataset.from_tensors(arrays).repeat()

    return dataset


def _follow(totals: list[Any], progress: Any) -> tuple[float, float, int]:
    """Show the executions as they end; return the epoch's mean loss, accuracy and examples."""
    loss = hits = examples = steps = 0.0
    for total in totals:
        with progress.during("" if steps else "waiting for the first steps"):
            values = total.fetch()
        loss, hits, examples = loss + values[0], hits + values[1], examples + values[2]
        steps += values[3]
        if steps < progress.target:
            shown = [("loss", loss / examples), ("accuracy", hits / examples)]
            progress.update(int(steps), shown)
    return float(loss / examples), float(hits / examples), int(examples)


def _validate(model: Any, inputs: Inputs) -> dict[str, float]:
    if inputs.validation_data is None:
        return {}
    results = model.evaluate(*inputs.validation_data, verbose=0, return_dict=True)
    return {f"val_{name}": float(value) for name, value in results.items()}
