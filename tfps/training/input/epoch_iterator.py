"""Keras's epoch iterator, giving out steps of a ticket run instead of batches."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfps.bridge.keras_private import DataAdapter, EpochIterator, TFDatasetAdapter
from tfps.consistency.local_steps import period_steps_of
from tfps.consistency.synchronous import adaptive_batches_of
from tfps.runtime.worker.closure_run import BatchSource
from tfps.training.input.arrays import ResidentArrays
from tfps.training.input.dataset_function import (
    DatasetFunctionAdapter,
    WorkerPipelines,
    is_dataset_function,
)
from tfps.training.input.dataset_graph import NotPortableError
from tfps.training.input.early_dataset import move_to_this_task
from tfps.training.input.feeder import Feeder
from tfps.training.input.shard_pipelines import ShardPipelines
from tfps.training.input.sharded_dataset import ShardedDataset
from tfps.training.input.sharding import pipeline_per_worker
from tfps.training.input.worker_dataset import WorkerDataset

if TYPE_CHECKING:
    from tfps.training.fit_strategy import FitStrategy

logger = logging.getLogger(__name__)

NOT_EXACT = (
    "fit with a dataset function: when a worker dies, the epoch skips the rest of its data. To "
    "use each example exactly once, pass tfps.ShardedDataset(function, number=n)."
)
IDLE_WORKERS = (
    "tfps.ShardedDataset: received number=%d with %d workers, which leaves %d of them without "
    "data; set number to several times the number of workers."
)


def choose_source(
    adapter: DataAdapter, *, coordinator: Any, workers: int, period_steps: int
) -> BatchSource:
    """Return the source of an input: on the workers if possible, else fed by the chief.

    Args:
        adapter: what Keras made of the arguments of `fit` or `evaluate`.
        coordinator: for pipelines that run on workers.
        workers: how many there are.
        period_steps: of a worker, for one ticket of the servers.
    """
    if isinstance(adapter, DatasetFunctionAdapter):
        if adapter.shards is not None:
            return ShardPipelines(
                adapter.function, shards=adapter.shards, coordinator=coordinator, workers=workers
            )
        return WorkerPipelines(adapter.function, coordinator=coordinator, workers=workers)
    if ResidentArrays.can_hold(adapter):
        return ResidentArrays(adapter)
    made = adapter.get_tf_dataset()
    dataset = move_to_this_task(made)
    try:
        return WorkerDataset(dataset, identity=made, coordinator=coordinator, workers=workers)
    except NotPortableError as reason:
        chief = coordinator.strategy.runtime.topology.chief
        return Feeder(dataset, reason=str(reason), device=chief, period_steps=period_steps)


class TicketRunRequest:
    """A request to the train or test function to run this epoch up to a step.

    Attributes:
        source: where batches come from.
        data_pass: the source's current pass over the data.
        offset_steps: how far the pass had come when the epoch began.
        tickets: steps of the epoch, None when only the data know.
        upto_steps: steps of the epoch that shall be done when the function returns.
    """

    def __init__(
        self, source: Any, data_pass: Any, *, offset_steps: int, tickets: int | None
    ) -> None:
        self.source, self.data_pass = source, data_pass
        self.offset_steps, self.tickets = offset_steps, tickets
        self.upto_steps = 0

    @classmethod
    def for_one_step(cls, source: Any) -> TicketRunRequest:
        """Return a request for the single step of a source with one batch."""
        request = cls(source, None, offset_steps=0, tickets=1)
        request.upto_steps = 1
        return request

    @property
    def is_last(self) -> bool:
        return self.tickets is not None and self.upto_steps >= self.tickets


class TicketIterator(EpochIterator):
    """Yields (first step, last step, `TicketRunRequest`); the numbers are those of plain Keras.

    Args:
        strategy: ours.
        x: data as `fit` takes them; a dataset function is accepted too.
        options: the other arguments of Keras's epoch iterator.
    """

    def __init__(self, *, strategy: FitStrategy, x: Any, **options: Any) -> None:
        x = get_original_input(x)
        # Only `fit` passes class weights; an evaluation visits each example once, whatever is set.
        fits, workers = "class_weight" in options, strategy.runtime.workers
        if fits and (function := pipeline_per_worker(_with_class_weights(x, options))):
            x, options["class_weight"] = function, None
        elif isinstance(x, ShardedDataset) and x.number < workers:
            warn_once(IDLE_WORKERS, x.number, workers, workers - x.number)
        elif fits and not isinstance(x, ShardedDataset) and is_dataset_function(x):
            warn_once(NOT_EXACT)
        if is_dataset_function(x):
            # As many as the function would make pipelines in `fit`, so that it is called alike.
            x = DatasetFunctionAdapter.from_input(x, options, shards=None if fits else workers)
            options["shuffle"] = False
        super().__init__(x=x, **options)
        self.source = choose_source(
            self.data_adapter,
            coordinator=strategy.coordinator,
            workers=workers,
            period_steps=_max_steps_between_exchanges(strategy),
        )
        if isinstance(self.source, Feeder):
            self.source.until_seen = strategy.run_state.recovery is not None
        self._strategy = strategy
        self._request: TicketRunRequest | None = None

    @property
    def batch_spec(self) -> Any:
        return self.source.batch_spec

    def _get_iterator(self) -> Any:
        return _Passes(self.source)

    def __iter__(self) -> Iterator[Any]:
        self._request = None
        steps_before = self._steps_seen if self._current_iterator is not None else 0
        self._offset_steps = steps_before if self.steps_per_epoch else 0
        return super().__iter__()

    def __next__(self) -> tuple[int, int, TicketRunRequest]:
        begin, end, data_pass = next(self._epoch_iterator)
        if self._request is None:
            self._request = TicketRunRequest(
                self.source,
                data_pass.value,
                offset_steps=self._offset_steps,
                tickets=self._tickets_of_epoch(),
            )
        request = self._request
        request.upto_steps = end + 1
        if request.tickets is not None:
            request.upto_steps = min(request.upto_steps, request.tickets)
        return begin, end, request

    def _tickets_of_epoch(self) -> int | None:
        if isinstance(self.source, ShardPipelines) and not self.steps_per_epoch:
            return None  # a period that is cut short where a shard ends takes a ticket, too
        total = self.steps_per_epoch or self._num_batches
        if total is None or total < 0:
            return None
        if self.steps_per_epoch and self._num_batches and self._num_batches > 0:
            return int(min(total, self._num_batches - self._offset_steps))
        return int(total)

    def tf_sync(self) -> None:
        """End the run on all workers; Keras calls this when its loop ends, also early."""
        self._finish_epoch(is_whole=True)

    def _finish_epoch(self, *, is_whole: bool) -> None:
        epoch_runner = self._strategy.run_state.epoch_runner
        if epoch_runner is not None and epoch_runner.has_started(self._request):
            epoch_runner.finish_epoch(is_whole=is_whole)
        # Else Keras's generator and this object keep each other.
        self._epoch_iterator: Any = None

    def _interrupted_warning(self) -> None:
        """Skip Keras's warning if the length is unknown: its advice to repeat data is wrong."""
        if self.steps_per_epoch or not isinstance(self.data_adapter, DatasetFunctionAdapter):
            super()._interrupted_warning()

    @contextlib.contextmanager
    def catch_stop_iteration(self) -> Iterator[None]:
        with super().catch_stop_iteration():
            try:
                yield
            except StopIteration:
                self._finish_epoch(is_whole=True)
                raise
            except KeyboardInterrupt:
                raise  # no worker is waited for: `Trainer.following_workers` gives the run up
            except BaseException:
                self._finish_epoch(is_whole=False)
                raise
            self._finish_epoch(is_whole=True)


def get_original_input(x: Any) -> Any:
    """Return the input that `experimental_distribute_dataset` or a similar method received."""
    for attribute in ("_original_dataset", "_dataset_fn"):
        if isinstance(x, tf.distribute.DistributedDataset) and hasattr(x, attribute):
            return getattr(x, attribute)
    return x


@functools.cache
def warn_once(message: str, *arguments: int) -> None:
    """Log a warning, unless this process has logged it before."""
    logger.warning(message, *arguments)


def _with_class_weights(x: Any, options: dict[str, Any]) -> Any:
    """Return the dataset with the class weights that `fit` was given."""
    if not isinstance(x, tf.data.Dataset) or options["class_weight"] is None:
        return x
    return TFDatasetAdapter(x, class_weight=options["class_weight"]).get_tf_dataset()


def _max_steps_between_exchanges(strategy: FitStrategy) -> int:
    """Return how many steps a worker can take between two exchanges."""
    adaptive_batches = adaptive_batches_of(strategy.consistency)
    if adaptive_batches > 1:
        return int(adaptive_batches * strategy.runtime.workers)
    return period_steps_of(strategy.consistency)


class _Passes:
    """An iterable that starts a new pass over the data."""

    def __init__(self, source: BatchSource) -> None:
        self._source = source

    def __iter__(self) -> _Pass:
        return _Pass(self._source.new_pass())


class _Pass:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __iter__(self) -> _Pass:
        return self

    def __next__(self) -> Any:
        raise StopIteration  # Keras hands it on and never draws from it
