"""Many steps in one fit, of an endless generator, and in a custom loop: the memory of the tasks."""

from __future__ import annotations

from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.cluster.process_memory import memory_by_task_kb
from tests.integration.reports.report import Report

BATCH, SAMPLES, WARM_UP_SAMPLES = 32, 40, 10
FIT_STEPS, SCHEDULED_STEPS = 20_000, 6_000
STEPS_BETWEEN_JOINS = 50
MOST_KB_PER_STEP = 1.0

Batch = tuple[np.ndarray, np.ndarray]


def endless_batches() -> Iterator[Batch]:
    generator = np.random.default_rng(0)
    while True:
        x = generator.random((BATCH, 8), "float32")
        yield x, x[:, :1]


class TaskMemory(keras.callbacks.Callback):
    """The memory of each task, sampled at regular steps."""

    def __init__(self, cluster: tfps.LocalCluster, *, steps: int) -> None:
        super().__init__()
        self._cluster, self._every = cluster, steps // SAMPLES
        self._steps: list[int] = []
        self._samples: list[dict[str, int]] = []

    def sample(self, step: int) -> None:
        """Take a sample if it is time for the next one."""
        if step >= self._every * (1 + len(self._steps)):
            self._steps.append(step)
            self._samples.append(memory_by_task_kb(self._cluster))

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self.sample(batch + 1)

    def report(self, report: Report, case: str) -> None:
        """Print by how much each task grows with a step, after the warm-up."""
        steps, samples = self._steps[WARM_UP_SAMPLES:], self._samples[WARM_UP_SAMPLES:]
        for task in samples[0]:
            slope, _ = np.polyfit(steps, [sample[task] for sample in samples], 1)
            report.line(
                f"{case}, {task}: kB for each of the last {steps[-1] - steps[0]} steps",
                expected=f"below {MOST_KB_PER_STEP}",
                got=f"{slope:.3f}, at {samples[-1][task] / 1e3:.0f} MB",
                equal=slope < MOST_KB_PER_STEP,
            )


def schedule_steps(strategy: tfps.ParameterServerStrategy, memory: TaskMemory) -> None:
    model, coordinator = make_model(strategy), strategy.coordinator

    @tf.function
    def step() -> tf.Tensor:
        x = tf.random.uniform((BATCH, 8))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - x[:, :1]))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    for number in range(1, SCHEDULED_STEPS + 1):
        coordinator.schedule(step)
        if number % STEPS_BETWEEN_JOINS == 0:
            coordinator.join()
            memory.sample(number)


def make_model(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    with strategy.scope():
        layers = [keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile("adam", "mse")
        model.optimizer.build(model.trainable_variables)
    return model


def compare(report: Report) -> None:
    with tfps.LocalCluster(workers=2, ps=1) as cluster:
        strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
        memory = TaskMemory(cluster, steps=FIT_STEPS)
        options = {"steps_per_epoch": FIT_STEPS, "verbose": 0, "callbacks": [memory]}
        make_model(strategy).fit(endless_batches(), **options)
        memory.report(report, "fit of a generator")

        memory = TaskMemory(cluster, steps=SCHEDULED_STEPS)
        schedule_steps(strategy, memory)
        memory.report(report, "scheduled functions")
        strategy.close()
