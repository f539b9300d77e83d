"""A dataset function as input: every worker builds and iterates a pipeline of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from tfps.bridge import tensorflow_private as private
from tfps.training.batch import count_examples, empty_component, restore_batch


class DatasetFunctionAdapter(DataAdapter):
    """Lets Keras's epoch iterator carry a dataset function; it knows nothing of its length."""

    def __init__(self, function: Callable[..., tf.data.Dataset]) -> None:
        self.function = function

    @property
    def num_batches(self) -> int | None:
        return None

    @property
    def batch_size(self) -> int | None:
        return None

    @property
    def has_partial_batch(self) -> bool | None:
        return None

    @property
    def partial_batch_size(self) -> int | None:
        return None


def is_dataset_function(x: Any) -> bool:
    """Whether the input of `fit` is a function (or a `DatasetCreator`) that makes a dataset."""
    if isinstance(x, (tf.data.Dataset, DataAdapter)) or hasattr(x, "__array__"):
        return False
    return inspect.isfunction(x) or inspect.ismethod(x) or hasattr(x, "dataset_fn")


class WorkerPipelines:
    """One pipeline per worker; a ticket is the right to draw one batch from the own one.

    The function receives a true `tf.distribute.InputContext` (workers, index, local replicas) and
    should shard by it; one that ignores it shows all data to each worker.

    Args:
        function: from an InputContext (or nothing) to a dataset.
        coordinator: runs the function on every worker, and again on one that came back.
        workers: how many there are.
    """

    is_per_worker = True

    def __init__(
        self, function: Callable[..., tf.data.Dataset], *, coordinator: Any, workers: int
    ) -> None:
        self._function = getattr(function, "dataset_fn", function)
        self.uses_context = bool(inspect.signature(self._function).parameters)
        self._coordinator = coordinator
        self._datasets = [
            tf.function(lambda index=index: self._make(index, workers)).get_concrete_function()
            for index in range(workers)
        ]
        self.batch_spec = self._datasets[0].structured_outputs.element_spec
        self._flat_specs = tf.nest.flatten(self.batch_spec, expand_composites=True)

    @property
    def description(self) -> str:
        return "a dataset function, called on every worker"

    def _make(self, index: int, workers: int) -> tf.data.Dataset:
        context = tf.distribute.InputContext(
            num_input_pipelines=workers, input_pipeline_id=index, num_replicas_in_sync=1
        )
        dataset = self._function(context) if self.uses_context else self._function()
        if not isinstance(dataset, tf.data.Dataset):
            raise TypeError(
                f"the dataset function returned {type(dataset).__name__}, expected a "
                "tf.data.Dataset of batches"
            )
        return dataset

    def key(self) -> Any:
        return ("pipelines", str(self.batch_spec))

    def new_pass(self) -> list[Any]:
        """Build every worker's pipeline anew."""
        return private.create_on_workers(
            self._coordinator, [_maker_of_iterators(dataset) for dataset in self._datasets]
        )

    def arguments(self, iterators: list[Any], offset_steps: int) -> list[Any]:
        return iterators

    def argument_specs(self, arguments: list[Any]) -> Any:
        return (tf.data.IteratorSpec(self.batch_spec),)

    def bind(self, arguments: list[Any], slot: int) -> Any:
        return (private.remote_result(arguments[slot]),)

    def fetch(
        self, arguments: Any, *, ticket: tf.Tensor, position: tf.Tensor, incarnation: tf.Tensor
    ) -> tuple[tf.Tensor, Any]:
        (iterator,) = arguments

        def draw() -> list[tf.Tensor]:
            optional = iterator.get_next_as_optional()
            there = optional.has_value()

            def take() -> list[tf.Tensor]:
                return tf.nest.flatten(optional.get_value(), expand_composites=True)

            return [there, *tf.cond(there, take, self._nothing)]

        there, *components = tf.cond(
            ticket >= 0, draw, lambda: [tf.constant(False), *self._nothing()]
        )
        return there, restore_batch(self.batch_spec, components)

    def examples(self, batch: Any) -> tf.Tensor:
        return count_examples(batch)

    def settle(self) -> None:
        """Nothing is kept for a ticket."""

    def _nothing(self) -> list[tf.Tensor]:
        return [tf.constant(empty_component(spec)) for spec in self._flat_specs]


def _maker_of_iterators(dataset: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: iter(dataset())
