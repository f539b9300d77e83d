"""Many fits of one model, with evaluations and predictions between them: the memory of the tasks.

The pipelines of a fit stayed on its workers until Python's collector came to the chief.
"""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.cluster.process_memory import memory_by_task_kb
from tests.integration.reports.report import Report

ROUNDS, WARM_UP, MOST_GROWTH = 200, 50, 1.05
# The chief keeps collected functions registered: their removal would have to wait for all tasks.
MOST_CHIEF_KB_PER_ROUND = 350
BATCH, STEPS = 32, 5
X, Y = np.ones((BATCH * STEPS, 8), "float32"), np.ones((BATCH * STEPS, 1), "float32")


def train(model: keras.Model) -> None:
    """Fit on arrays, and on a new dataset function; evaluate and predict between them."""
    model.fit(X, Y, batch_size=BATCH, verbose=0)
    model.predict(X, batch_size=8, verbose=0)  # enough batches for the workers
    model.fit(make_dataset_function(), steps_per_epoch=STEPS, verbose=0)
    model.evaluate(X, Y, batch_size=BATCH, verbose=0)


def make_dataset_function() -> Callable[[], tf.data.Dataset]:
    """Return a new function of the same batches, as a program has that makes one for each fit."""
    return lambda: tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(BATCH)


def compare(report: Report) -> None:
    with tfps.LocalCluster(workers=2, ps=1) as cluster:
        strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
        with strategy.scope():
            layers = [keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)]
            model = keras.Sequential(layers)
            model.compile("adam", "mse", metrics=["mae"])
        known: dict[str, int] = {}
        for number in range(1, ROUNDS + 1):
            train(model)
            if number == WARM_UP:
                known = memory_by_task_kb(cluster)
        for task, now_kb in memory_by_task_kb(cluster).items():
            allowed_kb = MOST_GROWTH * known[task]
            if task == "chief":
                allowed_kb = known[task] + MOST_CHIEF_KB_PER_ROUND * (ROUNDS - WARM_UP)
            report.line(
                f"{task}, MB after {ROUNDS} rounds of two fits, {known[task] / 1e3:.1f} after "
                f"{WARM_UP}",
                expected=f"at most {allowed_kb / 1e3:.1f}",
                got=f"{now_kb / 1e3:.1f}",
                equal=now_kb <= allowed_kb,
            )
        strategy.close()
