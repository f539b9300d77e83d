"""Which way a `fit` input reaches the workers."""

from __future__ import annotations

import logging
from typing import Any

import tensorflow as tf
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from tfps.training.arrays import ResidentArrays
from tfps.training.dataset_function import DatasetFunctionAdapter, WorkerPipelines
from tfps.training.feeder import Feeder

logger = logging.getLogger(__name__)

Source = ResidentArrays | Feeder | WorkerPipelines


def choose_source(adapter: DataAdapter, *, coordinator: Any, workers: int) -> Source:
    """Arrays lie on the workers, a function runs on each worker, anything else is fed.

    Args:
        adapter: what Keras made of the arguments of `fit` or `evaluate`.
        coordinator: for pipelines that run on workers.
        workers: how many there are.
    """
    if isinstance(adapter, DatasetFunctionAdapter):
        return WorkerPipelines(adapter.function, coordinator=coordinator, workers=workers)
    if ResidentArrays.suits(adapter):
        return ResidentArrays(adapter)
    return Feeder(_on_this_task(adapter.get_tf_dataset()))


def _on_this_task(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """A dataset made before the strategy connected carries a device name that is gone.

    A dataset derived now is made on today's device, without a copy.
    """
    if "/job:localhost" in dataset._variant_tensor.device:
        return dataset.take(-1)
    return dataset
