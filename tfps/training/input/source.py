"""Which way a `fit` input reaches the workers."""

from __future__ import annotations

from typing import Any

from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from tfps.training.input.arrays import ResidentArrays
from tfps.training.input.dataset_function import DatasetFunctionAdapter, WorkerPipelines
from tfps.training.input.dataset_graph import NotPortable
from tfps.training.input.early_dataset import on_this_task
from tfps.training.input.feeder import Feeder
from tfps.training.input.shard_pipelines import ShardPipelines
from tfps.training.input.worker_dataset import WorkerDataset

Source = ResidentArrays | Feeder | WorkerDataset | WorkerPipelines | ShardPipelines


def choose_source(
    adapter: DataAdapter, *, coordinator: Any, workers: int, period_steps: int
) -> Source:
    """Arrays lie on the workers, functions and datasets run there, what cannot is fed.

    Args:
        adapter: what Keras made of the arguments of `fit` or `evaluate`.
        coordinator: for pipelines that run on workers.
        workers: how many there are.
        period_steps: of a worker, for one ticket of the servers.
    """
    if isinstance(adapter, DatasetFunctionAdapter):
        if adapter.shards is not None:
            return ShardPipelines(
                adapter.function, number=adapter.shards, coordinator=coordinator, workers=workers
            )
        return WorkerPipelines(adapter.function, coordinator=coordinator, workers=workers)
    if ResidentArrays.suits(adapter):
        return ResidentArrays(adapter)
    made = adapter.get_tf_dataset()
    dataset = on_this_task(made)
    try:
        return WorkerDataset(dataset, identity=made, coordinator=coordinator, workers=workers)
    except NotPortable as reason:
        chief = coordinator.strategy.runtime.topology.chief
        return Feeder(dataset, reason=str(reason), device=chief, period_steps=period_steps)
