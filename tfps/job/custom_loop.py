"""`training.loop = "custom"`: a classifier's job through `ClusterCoordinator.schedule`.

The coordinator draws one permutation per epoch and schedules executions; each names the positions
of its examples, and every worker has the arrays. So each example is used once per epoch, whichever
worker takes an execution, and one that a lost worker leaves behind is simply scheduled again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge.remote_value import is_done
from tfps.config import JobConfig
from tfps.job.array_inputs import ArrayInputs
from tfps.job.epochs import Epoch, TrainingRecord
from tfps.strategy.coordinator import ClusterCoordinator
from tfps.training.progress import ClusterProgbar

LOOK_EVERY_S = 0.02


def train_with_custom_loop(
    strategy: Any, model: Any, inputs: ArrayInputs, config: JobConfig
) -> TrainingRecord:
    """Train a compiled model step by step; answers what its epochs measured.

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
    epochs: list[Epoch] = []
    examples_seen = 0
    for epoch in range(config.training.epochs):
        began_s = time.monotonic()
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
        workers = sum(strategy.alive_workers())
        loss, accuracy, examples = follow(totals, progress, workers=workers)
        with progress.during("validation"):
            validation = _validate(model, inputs)
        metrics = {"loss": loss, "accuracy": accuracy, **validation}
        progress.update(steps, metrics.items(), finalize=True)
        examples_seen += examples
        seconds = time.monotonic() - began_s
        epochs.append(Epoch(epoch + 1, steps, seconds, progress.steps_per_s, metrics))
    coordinator.join()
    return TrainingRecord(epochs, examples_seen)


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


def _arrays(inputs: ArrayInputs) -> Callable[[], Any]:
    def dataset() -> Any:
        arrays = (inputs.x_train, inputs.y_train.astype(np.int64))
        return tf.data.Dataset.from_tensors(arrays).repeat()

    return dataset


def follow(totals: list[Any], progress: Any, *, workers: int) -> tuple[float, float, int]:
    """Show the executions as they end; return the epoch's mean loss, accuracy and examples.

    The first of each worker say nothing of its speed: they begin with what an epoch begins with.

    Args:
        totals: what the executions answer, in the order in which workers take them.
        progress: a `ClusterProgbar`.
        workers: how many execute them.
    """
    waiting, ended = list(totals), 0
    loss = hits = examples = steps = 0.0
    while waiting:
        done = [total for total in waiting if is_done(total)]
        if not done:
            progress.show(int(steps), "" if steps else "waiting for the first steps")
            time.sleep(LOOK_EVERY_S)
            continue
        waiting = [total for total in waiting if total not in done]
        for total in done:
            values = total.fetch()
            loss, hits, examples = loss + values[0], hits + values[1], examples + values[2]
            steps += values[3]
        ended += len(done)
        if ended >= workers:
            shown = [("loss", loss / examples), ("accuracy", hits / examples)]
            progress.update(int(steps), shown, finalize=False)
    return float(loss / examples), float(hits / examples), int(examples)


def _validate(model: Any, inputs: ArrayInputs) -> dict[str, float]:
    if inputs.validation_data is None:
        return {}
    results = model.evaluate(*inputs.validation_data, verbose=0, return_dict=True)
    return {f"val_{name}": float(value) for name, value in results.items()}
