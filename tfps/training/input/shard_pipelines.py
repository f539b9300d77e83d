"""Iterate a sharded dataset function, so that each batch is used once."""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.consistency.shard_book import ShardBook
from tfps.runtime.worker.closure_run import BatchClaim, BatchSource
from tfps.training.input.batch import common_spec, empty_batch, number_batches, restore_batch
from tfps.training.input.dataset_function import (
    dataset_of_pipeline,
    refuse_data_service,
    takes_context,
)
from tfps.training.input.dataset_graph import make_operations_deterministic, without_global_seed
from tfps.training.input.lease_service import NO_SHARD, LeaseService

logger = logging.getLogger(__name__)

# Dataset operations run on processors only, and so must what picks one.
CPU_DEVICE = "/device:CPU:0"
IN_ORDER = tf.data.Options()
IN_ORDER.deterministic = True


class ShardPass:
    """One pass over all shards; workers build its pipelines once it is used."""

    def __init__(self, book: ShardBook) -> None:
        self.book = book
        self.name: int | None = None  # by which the lease service knows it
        self.on_workers: Sequence[Any] = ()


class ShardPipelines(BatchSource):
    """Pipelines that workers build for the shards that they hold a lease of.

    In each step a worker asks the chief which batch of which shard belongs to its ticket. A ticket
    that came back from a lost worker keeps its batch. The worker that takes it over
    builds the shard's pipeline anew and draws up to that batch, so all workers must see a shard's
    batches in one order: random choices of the function are fixed, differently in each pass.

    Args:
        function: takes an InputContext and returns the dataset of a shard, or takes nothing and
            returns a dataset that is cut into shards, batch by batch.
        shards: the number of shards.
        coordinator: runs the function on every worker, and again on one that came back.
        workers: the number of workers.
    """

    begins_anew = "it is not recorded how far the shards of a tfps.ShardedDataset were used"

    def __init__(
        self,
        function: Callable[..., tf.data.Dataset],
        *,
        shards: int,
        coordinator: Any,
        workers: int,
    ) -> None:
        self._function, self._shards = function, shards
        self._coordinator, self._workers = coordinator, workers
        self._lease_service = LeaseService.for_coordinator(coordinator)
        self._passes = itertools.count()
        self._book: ShardBook | None = None
        self.batch_spec: Any = None
        scalar = tf.TensorSpec([], tf.int64)
        # Without AutoGraph, which would hide where the user's function raised an error.
        self._open_function = tf.function(self._trace, autograph=False).get_concrete_function(
            scalar, scalar
        )
        self._numbered_spec = self._open_function.structured_outputs[0].element_spec
        self._flat_specs = tf.nest.flatten(self.batch_spec, expand_composites=True)

    @property
    def description(self) -> str:
        return f"a dataset function in {self._shards} shards, each used by one worker at a time"

    @property
    def input_graphs(self) -> list[Any]:
        return [self._open_function.graph]

    @property
    def shard_leases(self) -> ShardBook | None:
        return self._book

    def trace_key(self) -> Any:
        return ("shards", str(self.batch_spec))

    def new_pass(self) -> ShardPass:
        """Start a new pass over all shards, in a new order if they are shuffled."""
        return ShardPass(
            ShardBook(self._shards, is_at_work=functools.partial(_is_at_work, self._coordinator))
        )

    def make_arguments(self, data_pass: ShardPass, offset_steps: int) -> Any:
        self._book = data_pass.book
        if data_pass.name is not None:
            self._lease_service.close(data_pass.name)
        data_pass.name = self._lease_service.open(data_pass.book)  # of this run
        if not data_pass.on_workers:
            seed = next(self._passes)
            data_pass.on_workers = private.create_on_workers(
                self._coordinator,
                [
                    functools.partial(self._start_iterator, worker % self._shards, seed)
                    for worker in range(self._workers)
                ],
            )
        data_pass.book.begin_ticket_run(offset_steps)
        return data_pass.on_workers, data_pass.name

    def get_argument_specs(self, arguments: Any) -> Any:
        return (
            tf.data.IteratorSpec(self._numbered_spec),
            tf.TensorSpec([None], tf.variant),
            tf.TensorSpec([2], tf.int64),
        )

    def select_arguments(self, arguments: Any, worker: int) -> Any:
        on_workers, name = arguments
        return (*private.wait_for_result(on_workers[worker]), tf.constant([name, worker], tf.int64))

    def fetch(self, arguments: Any, claim: BatchClaim) -> tuple[tf.Tensor, Any]:
        iterator, pipelines, numbers = arguments
        name, worker = tf.unstack(numbers)
        no_place = [tf.constant(NO_SHARD, tf.int64), tf.constant(0, tf.int64)]

        def ask(ended: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            return self._lease_service.ask(
                name,
                worker=worker,
                position=claim.position,
                returns_ticket=claim.returns_ticket,
                ended=ended,
            )

        def draw_next(shard: tf.Tensor, index: tf.Tensor, *_: tf.Tensor) -> list[tf.Tensor]:
            number, is_found, *components = self._draw_batch_at(iterator, pipelines, (shard, index))
            place = tf.cond(is_found, lambda: [shard, index], lambda: ask([shard, number]))
            return [*place, is_found, *components]

        place = tf.cond(claim.ticket >= 0, lambda: ask(no_place), lambda: no_place)
        scalar = tf.TensorShape([])
        _, _, is_found, *components = tf.while_loop(
            lambda shard, _, is_found, *__: (shard >= 0) & ~is_found,
            draw_next,
            [*place, tf.constant(False), *empty_batch(self.batch_spec)],
            shape_invariants=[scalar, scalar, scalar, *(s.shape for s in self._flat_specs)],
            parallel_iterations=1,
        )
        return is_found, restore_batch(self.batch_spec, components)

    def _start_iterator(self, shard: int, seed: int) -> Any:
        """Create on a worker the iterator of its likely first shard, and all pipelines."""
        dataset, pipelines = self._open_function(
            tf.constant(shard, tf.int64), tf.constant(seed, tf.int64)
        )
        return iter(dataset), pipelines

    def _trace(self, first: tf.Tensor, seed: tf.Tensor) -> Any:
        """Trace an iterator of one shard, and all shards' pipelines in the order of a pass."""
        graph = private.current_graph()
        with without_global_seed(graph):
            datasets = [dataset.with_options(IN_ORDER) for dataset in self._datasets()]
        refuse_data_service(graph)
        self.batch_spec = common_spec([dataset.element_spec for dataset in datasets], each="shard")
        unsettled = make_operations_deterministic(graph, seed)
        if unsettled:
            logger.warning(RANDOM_IN_FUNCTION, ", ".join(sorted(unsettled)))
        variants = [dataset._variant_tensor for dataset in datasets]
        with tf.device(CPU_DEVICE):
            # TensorFlow makes another operation of a stack of one, which knows no datasets.
            pipelines = tf.stack(variants if self._shards > 1 else variants * 2)
        return self._pipeline_of_shard(pipelines, first), pipelines

    def _datasets(self) -> list[tf.data.Dataset]:
        """Return a dataset for each shard: the function's, or parts of it without a context."""
        make = functools.partial(
            dataset_of_pipeline,
            self._function,
            pipelines=self._shards,
            strategy=self._coordinator.strategy,
        )
        if takes_context(self._function):
            return [make(index=shard) for shard in range(self._shards)]
        whole = make(index=0)
        return [whole.shard(self._shards, shard) for shard in range(self._shards)]

    def _pipeline_of_shard(self, pipelines: tf.Tensor, shard: tf.Tensor) -> tf.data.Dataset:
        """Return a dataset of one shard's numbered batches, then of empty batches without end.

        Its elements are (position in the shard, (shard, whether it is a batch, *components)).
        """
        with tf.device(CPU_DEVICE):
            variant = tf.gather(pipelines, shard)
            return number_batches(
                tf.data.experimental.from_variant(variant, self.batch_spec), shard
            )

    def _draw_batch_at(
        self, iterator: Any, pipelines: tf.Tensor, place: tuple[tf.Tensor, tf.Tensor]
    ) -> list[tf.Tensor]:
        """Draw up to a place, or its shard's end: return (number, whether it exists, *batch)."""
        shard, index = place
        scalar = tf.TensorShape([])
        invariants = [scalar, scalar, scalar, *(spec.shape for spec in self._flat_specs)]

        def draw(*_: Any) -> list[tf.Tensor]:
            number, (drawn, is_found, *components) = iterator.get_next()
            return [number, drawn, is_found, *components]

        def keep_drawing() -> list[tf.Tensor]:
            return list(
                tf.while_loop(
                    lambda number, drawn, is_found, *_: (
                        (drawn == shard) & is_found & (number < index)
                    ),
                    draw,
                    draw(),
                    shape_invariants=invariants,
                    parallel_iterations=1,
                )
            )

        def restart() -> list[tf.Tensor]:
            dataset = self._pipeline_of_shard(pipelines, shard)
            dataset = dataset._apply_debug_options()  # as iter() does
            begun = tf.raw_ops.MakeIterator(
                dataset=dataset._variant_tensor, iterator=iterator._iterator_resource
            )
            with tf.control_dependencies([begun]):
                return keep_drawing()

        found = keep_drawing()
        elsewhere = (found[1] != shard) | (found[0] > index)
        number, _, is_found, *components = tf.cond(elsewhere, restart, lambda: found)
        return [number, is_found, *components]


def _is_at_work(coordinator: Any, worker: int) -> bool:
    queue = private.get_closure_queue(coordinator)
    alive = private.get_alive_workers(coordinator)[worker]
    return alive and worker not in queue.blocked_workers | queue.recalled_workers


RANDOM_IN_FUNCTION = (
    "the dataset function has %s in a function of its dataset, without a seed or in any order, "
    "so two workers may read a shard in different orders. If a worker dies, an example may be "
    "used twice or not at all. Set a seed, or deterministic=True."
)
