"""Iterate a whole dataset on every worker; a ticket tells which batch a worker uses."""

from __future__ import annotations

import functools
import weakref
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.traced_graph import get_dataset_graphs
from tfps.runtime.worker.closure_run import BatchClaim, BatchSource
from tfps.training.input.batch import empty_batch, number_batches, numbered_spec, restore_batch
from tfps.training.input.dataset_graph import (
    NotPortableError,
    make_deterministic,
    portable_graph,
    reads_files,
)
from tfps.training.input.order_seed import OrderSeed

# How often each dataset was iterated: its shuffles give another order each time.
_passes_of: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


@dataclass
class WorkerPass:
    """One pass over a dataset, on every worker once it is used."""

    number: int
    iterators: list[Any] = field(default_factory=list)


class WorkerDataset(BatchSource):
    """Runs one dataset graph on all workers, so that all see the same batches.

    A worker draws until it holds the batch of its ticket and leaves the ones before to the others:
    nothing but the graph leaves the chief, however long the dataset is. A ticket that came back
    from a lost worker may lie behind; its new owner then begins the pass anew.

    Args:
        dataset: of batches, on this task.
        identity: what the user passed; its passes are counted.
        coordinator: makes the datasets, and makes them again on a worker that came back.
        workers: how many there are.
        seed: of shuffles without one; None: they are left to chance.

    Raises:
        NotPortableError: the dataset must be iterated on the chief.
    """

    may_widen_spec = True

    def __init__(
        self,
        dataset: tf.data.Dataset,
        *,
        identity: Any,
        coordinator: Any,
        workers: int,
        seed: OrderSeed | None = None,
    ) -> None:
        graph = portable_graph(dataset)
        make_deterministic(graph, chance=None if seed is None else seed.random())
        self.batch_spec = dataset.element_spec
        self._graph_bytes = graph.ByteSize()
        self._graph = tf.constant(graph.SerializeToString())
        if reads_files(graph):
            self._check_files(coordinator, workers)
        self._identity, self._coordinator = identity, coordinator
        self._first_pass = _passes_of.get(identity, 0)
        self._next_pass = [0] * workers  # that an iterator of a worker's dataset would be
        self._numbered = tf.function(
            self._make_numbered_dataset, autograph=False
        ).get_concrete_function(tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64))
        create = functools.partial(
            _create, self._numbered, self._graph, self._first_pass, self._next_pass
        )
        makers = [functools.partial(create, worker) for worker in range(workers)]
        self._datasets = private.create_on_workers(coordinator, makers)

    @property
    def description(self) -> str:
        return (
            f"a dataset in its serialized form ({self._graph_bytes / 1024:.0f} KB), iterated by "
            "every worker; each batch is used by one"
        )

    @property
    def input_graphs(self) -> list[Any]:
        return get_dataset_graphs(self._identity)

    @property
    def _flat_specs(self) -> list[Any]:
        return list(tf.nest.flatten(self.batch_spec, expand_composites=True))

    def trace_key(self) -> Any:
        return ("worker_dataset", str(self.batch_spec))

    def new_pass(self) -> WorkerPass:
        """Start the next pass over the dataset, in the order that its next iteration would have."""
        number = self.next_pass
        self.skip_passes(number + 1)
        return WorkerPass(number)

    @property
    def next_pass(self) -> int:  # type: ignore[override]
        """The number of the pass that begins next."""
        return _passes_of.get(self._identity, 0)

    def skip_passes(self, number: int) -> None:
        _passes_of[self._identity] = number

    def make_arguments(self, data_pass: WorkerPass, offset_steps: int) -> Any:
        if not data_pass.iterators:
            makers = [
                functools.partial(self._start_iterator, worker, data_pass.number)
                for worker in range(len(self._datasets))
            ]
            data_pass.iterators = private.create_on_workers(self._coordinator, makers)
        return data_pass.iterators, tf.constant([data_pass.number, offset_steps], tf.int64)

    def get_argument_specs(self, arguments: Any) -> Any:
        return (
            tf.data.IteratorSpec(numbered_spec(self._flat_specs)),
            tf.TensorSpec([], tf.string),
            tf.TensorSpec([2], tf.int64),
        )

    def select_arguments(self, arguments: Any, worker: int) -> Any:
        iterators, numbers = arguments
        return private.wait_for_result(iterators[worker]), self._graph, numbers

    def fetch(self, arguments: Any, claim: BatchClaim) -> tuple[tf.Tensor, Any]:
        iterator, graph, numbers = arguments
        wanted = claim.position + numbers[1]
        invariants = [tf.TensorShape([]), tf.TensorShape([]), *(s.shape for s in self._flat_specs)]

        def draw() -> list[tf.Tensor]:
            number, (is_found, *components) = iterator.get_next()
            return [number, is_found, *components]

        def draw_up_to_ticket() -> list[tf.Tensor]:
            return list(
                tf.while_loop(
                    lambda number, *_: number < wanted,
                    lambda *_: draw(),
                    draw(),
                    shape_invariants=invariants,
                    parallel_iterations=1,
                )
            )

        def restart() -> list[tf.Tensor]:
            dataset = self._make_numbered_dataset(
                graph, numbers[0]
            )._apply_debug_options()  # as iter() does
            begun = tf.raw_ops.MakeIterator(
                dataset=dataset._variant_tensor, iterator=iterator._iterator_resource
            )
            with tf.control_dependencies([begun]):
                return draw_up_to_ticket()

        def find_batch() -> list[tf.Tensor]:
            found = draw_up_to_ticket()
            return list(tf.cond(found[0] > wanted, restart, lambda: found))

        nothing = [tf.constant(0, tf.int64), tf.constant(False), *empty_batch(self.batch_spec)]
        _, is_found, *components = tf.cond(claim.ticket >= 0, find_batch, lambda: nothing)
        return is_found, restore_batch(self.batch_spec, components)

    def _start_iterator(self, worker: int, number: int) -> Any:
        """Return a pass's iterator, after earlier passes have taken their seeds."""
        dataset = private.wait_for_result(self._datasets[worker])
        while self._next_pass[worker] < number:
            iter(dataset)
            self._next_pass[worker] += 1
        self._next_pass[worker] = number + 1
        return iter(dataset)

    def _make_numbered_dataset(self, graph: tf.Tensor, passes: tf.Tensor) -> tf.data.Dataset:
        """Return an endless dataset of (number, (whether it is a batch, *components))."""
        variant = tf.raw_ops.DatasetFromGraph(graph_def=graph)
        dataset = tf.data.experimental.from_variant(variant, self.batch_spec)

        def pass_over(done: tf.Tensor) -> tf.Tensor:
            iter(dataset)  # takes the seeds of a pass, and no batch
            return done + 1

        before = tf.while_loop(lambda done: done < passes, pass_over, [tf.constant(0, tf.int64)])
        with tf.control_dependencies(before):
            return number_batches(dataset)

    def _check_files(self, coordinator: Any, workers: int) -> None:
        """Raise NotPortableError if a worker cannot read the files, which the chief has."""

        @tf.function(autograph=False)
        def first(graph: tf.Tensor) -> tf.Tensor:
            variant = tf.raw_ops.DatasetFromGraph(graph_def=graph)
            dataset = tf.data.experimental.from_variant(variant, self.batch_spec)
            return iter(dataset).get_next_as_optional().has_value()

        topology = coordinator.strategy.runtime.topology
        for worker, alive in enumerate(private.get_alive_workers(coordinator)):
            try:
                with tf.device(topology.worker(worker)):
                    if alive:
                        first(self._graph)
            except (tf.errors.NotFoundError, tf.errors.PermissionDeniedError) as error:
                raise NotPortableError(
                    f"worker {worker} cannot read its files: {error.message}"
                ) from None
            except tf.errors.UnavailableError:
                continue  # it is lost, and looked after elsewhere


def _create(
    numbered: Any, graph: tf.Tensor, first_pass: int, next_pass: list[int], worker: int
) -> tf.data.Dataset:
    """Make a source's dataset on a worker; it lives as long as the source, and so do its caches.

    No method: the source would refer to itself, and wait for Python's collector.
    """
    next_pass[worker] = first_pass
    return numbered(graph, tf.constant(first_pass, tf.int64))
