"""Many calls of `train_on_batch`: the memory of the tasks."""

from __future__ import annotations

import tfps
from tests.integration.reports.memory_of_steps import TaskMemory, endless_batches, make_model
from tests.integration.reports.report import Report

CALLS = 2_000


def compare(report: Report) -> None:
    with tfps.LocalCluster(workers=2, ps=1) as cluster:
        strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
        model, memory = make_model(strategy), TaskMemory(cluster, steps=CALLS)
        for number, (x, y) in zip(range(1, CALLS + 1), endless_batches(), strict=False):
            model.train_on_batch(x, y)
            memory.sample(number)
        memory.report(report, "train_on_batch")
        strategy.close()
