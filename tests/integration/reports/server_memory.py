"""Models that a program makes, trains and drops, as in a search: the memory of the tasks.

Each was kept on the servers until the strategy closed.
"""

from __future__ import annotations

import keras
import numpy as np
import psutil

import tfps
from tests.integration.reports.report import Report

WIDTHS = (2000, 8000, 4000)  # the largest has 8 million parameters: 96 MB with Adam's slots
MODELS, MOST_GROWTH = 9, 1.3
X, Y = np.ones((64, 1000), "float32"), np.ones((64, 1), "float32")


def train(strategy: tfps.ParameterServerStrategy, width: int) -> None:
    with strategy.scope():
        layers = [keras.Input((1000,)), keras.layers.Dense(width, "relu"), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile("adam", "mse")
    model.fit(X, Y, batch_size=32, verbose=0)


def largest_task_mb() -> int:
    """Return the memory of the largest process of the cluster."""
    children = psutil.Process().children(recursive=True)
    return max(child.memory_info().rss >> 20 for child in children)


def compare(report: Report) -> None:
    for workers in (1, 2):
        with tfps.LocalCluster(workers=workers, ps=1) as cluster:
            strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
            train(strategy, max(WIDTHS))
            alone = largest_task_mb()
            for number in range(MODELS):
                train(strategy, WIDTHS[number % len(WIDTHS)])
            most = largest_task_mb()
            report.line(
                f"{workers} workers, MB of the largest task after {MODELS} further models",
                expected=f"at most {MOST_GROWTH} x {alone}",
                got=most,
                equal=most <= MOST_GROWTH * alone,
            )
            strategy.close()
