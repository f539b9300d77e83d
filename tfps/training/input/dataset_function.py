"""A dataset function as input: every worker builds and iterates a pipeline of its own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.traced_graph import iter_operations
from tfps.bridge.keras_private import DataAdapter, TFDatasetAdapter
from tfps.errors import ConfigError, UnsupportedError
from tfps.runtime.worker.closure_run import BatchClaim, BatchSource
from tfps.training.input.batch import common_spec, empty_batch, restore_batch
from tfps.training.input.sharded_dataset import ShardedDataset


class DatasetFunctionAdapter(DataAdapter):
    """Wraps a dataset function for Keras's epoch iterator; its length is unknown.

    Args:
        function: makes a dataset.
        shards: how many; None: one pipeline per worker.
    """

    num_batches = batch_size = has_partial_batch = partial_batch_size = None

    def __init__(
        self, function: Callable[..., tf.data.Dataset], *, shards: int | None = None
    ) -> None:
        self.function, self.shards = function, shards

    @classmethod
    def from_input(
        cls, x: Any, options: dict[str, Any], *, shards: int | None
    ) -> DatasetFunctionAdapter:
        """Return an adapter that also applies the other arguments of `fit` or `evaluate`.

        Args:
            x: a callable, an object with a ``dataset_fn``, or a `ShardedDataset`.
            options: of Keras's epoch iterator; class weights are taken out.
            shards: how many, where `x` does not say it.

        Raises:
            ConfigError: targets or weights beside the function.
        """
        for name in ("y", "sample_weight"):
            if options.get(name) is not None:
                raise ConfigError(
                    f"{name}: received an array beside a dataset function, expected None; add it "
                    "to the batches of the function's dataset"
                )
        if isinstance(x, ShardedDataset):
            x, shards = x.function, x.number
        function = getattr(x, "dataset_fn", x)
        weights = options.pop("class_weight", None)
        if weights is not None:
            function = _with_class_weights(function, weights)
        return cls(function, shards=shards)


def _with_class_weights(
    function: Callable[..., tf.data.Dataset], weights: dict[int, float]
) -> Callable[..., tf.data.Dataset]:
    @functools.wraps(function, updated=())
    def weighted(*arguments: Any) -> tf.data.Dataset:
        adapter = TFDatasetAdapter(function(*arguments), class_weight=weights)
        return adapter.get_tf_dataset()

    return weighted


def is_dataset_function(x: Any) -> bool:
    """Return whether the input of `fit` is a callable (or a `DatasetCreator`) that makes a dataset.

    In shards or not.
    """
    if isinstance(x, ShardedDataset):
        return True
    if isinstance(x, (tf.data.Dataset, DataAdapter)) or hasattr(x, "__array__"):
        return False
    return hasattr(x, "dataset_fn") or (callable(x) and not hasattr(x, "__getitem__"))


def takes_context(function: Callable[..., Any]) -> bool:
    """Return whether a dataset function is to be called with a `tf.distribute.InputContext`.

    It is when a positional parameter needs a value, or when the first one is named after the
    context; ``def make(batch_size=64)`` wants none.
    """
    parameters = list(inspect.signature(function).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.default is p.empty for p in positional):
        return True
    if positional:
        return "context" in positional[0].name or positional[0].name == "ctx"
    return any(p.kind is p.VAR_POSITIONAL for p in parameters)


def dataset_of_pipeline(
    function: Callable[..., tf.data.Dataset],
    *,
    index: int,
    pipelines: int,
    strategy: tf.distribute.Strategy,
) -> tf.data.Dataset:
    """Return the dataset that a function makes for one of several input pipelines.

    Args:
        function: takes an InputContext, or nothing, and returns a dataset.
        index: of the pipeline.
        pipelines: how many there are.
        strategy: ours.

    Raises:
        TypeError: the function returns no dataset.
        UnsupportedError: in a trace, the dataset was made outside of it.
    """
    context = tf.distribute.InputContext(
        num_input_pipelines=pipelines,
        input_pipeline_id=index,
        num_replicas_in_sync=strategy.num_replicas_in_sync,
    )
    dataset = function(context) if takes_context(function) else function()
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(
            f"received {type(dataset).__name__} from the dataset function, expected a "
            "tf.data.Dataset of batches"
        )
    refuse_outside_dataset(dataset)
    return dataset


def refuse_outside_dataset(dataset: tf.data.Dataset) -> None:
    """Refuse a dataset that a traced dataset function has not made itself: workers have no copy.

    Raises:
        UnsupportedError: the dataset, or one that it is derived from, was made outside.
    """
    if tf.executing_eagerly():
        return
    if not tf.is_symbolic_tensor(dataset._variant_tensor):
        raise UnsupportedError(
            "dataset function: received a dataset that was made outside of it, or is derived from "
            "such a one, expected one that the function makes, since workers call it; call "
            "tf.data.Dataset.from_tensor_slices() in it, for example, or pass the dataset itself"
        )
    for source in dataset._inputs():
        refuse_outside_dataset(source)


def refuse_data_service(graph: Any) -> None:
    """Refuse a traced dataset function that reads from a `tf.data` service, for an input in shards.

    Each worker must be able to read a shard again in its order; a service hands out the elements of
    a shared pass once, and those of several of its workers in any order.

    Raises:
        UnsupportedError: the function, or one of its dataset's functions, reads from a service.
    """
    if any(op.type.startswith("DataServiceDataset") for op in iter_operations(graph)):
        raise UnsupportedError(
            "dataset function: received a dataset of a tf.data service for evaluate, "
            "validation_data or a tfps.ShardedDataset, expected one that each worker can read "
            "again in the same order; a service hands out each element once, in any order. Pass "
            "the dataset that the function returns, as in evaluate(function()): the chief reads it"
        )


class WorkerPipelines(BatchSource):
    """Builds one pipeline per worker; with a ticket a worker draws one batch from its pipeline.

    The function receives a true `tf.distribute.InputContext` (workers, index, local replicas) and
    should shard by it; one that ignores it shows all data to each worker.

    Args:
        function: from an InputContext (or nothing) to a dataset.
        coordinator: runs the function on every worker, and again on one that came back.
        workers: how many there are.
    """

    is_per_worker = True
    begins_anew = "a dataset function makes them on each worker, without a position"
    may_widen_spec = True

    def __init__(
        self, function: Callable[..., tf.data.Dataset], *, coordinator: Any, workers: int
    ) -> None:
        self._coordinator = coordinator
        self._datasets = [
            # Without AutoGraph, which would hide where the user's function raised an error.
            tf.function(
                functools.partial(
                    dataset_of_pipeline,
                    function,
                    index=index,
                    pipelines=workers,
                    strategy=coordinator.strategy,
                ),
                autograph=False,
            ).get_concrete_function()
            for index in range(workers)
        ]
        self.batch_spec = common_spec(
            [dataset.structured_outputs.element_spec for dataset in self._datasets], each="worker"
        )

    @property
    def description(self) -> str:
        return "a dataset function, called on every worker"

    @property
    def input_graphs(self) -> list[Any]:
        return [dataset.graph for dataset in self._datasets]

    def trace_key(self) -> Any:
        return ("pipelines", str(self.batch_spec))

    def new_pass(self) -> list[Any]:
        """Build every worker's pipeline anew."""
        return private.create_on_workers(
            self._coordinator, [_make_iterator_factory(dataset) for dataset in self._datasets]
        )

    def make_arguments(self, iterators: list[Any], offset_steps: int) -> list[Any]:
        return iterators

    def get_argument_specs(self, arguments: list[Any]) -> Any:
        return (tf.data.IteratorSpec(self.batch_spec),)

    def select_arguments(self, arguments: list[Any], worker: int) -> Any:
        return (private.wait_for_result(arguments[worker]),)

    def fetch(self, arguments: Any, claim: BatchClaim) -> tuple[tf.Tensor, Any]:
        (iterator,) = arguments

        def draw() -> list[tf.Tensor]:
            optional = iterator.get_next_as_optional()
            is_found = optional.has_value()

            def take() -> list[tf.Tensor]:
                return tf.nest.flatten(optional.get_value(), expand_composites=True)

            return [is_found, *tf.cond(is_found, take, lambda: empty_batch(self.batch_spec))]

        is_found, *components = tf.cond(
            claim.ticket >= 0, draw, lambda: [tf.constant(False), *empty_batch(self.batch_spec)]
        )
        return is_found, restore_batch(self.batch_spec, components)


def _make_iterator_factory(dataset: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: iter(dataset())
