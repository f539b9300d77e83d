"""Keras's epoch iterator, giving out steps of a ticket run instead of batches."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfps.bridge.keras_private import ArrayDataAdapter, DataAdapter, EpochIterator, TFDatasetAdapter
from tfps.consistency.local_steps import period_steps_of
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
from tfps.training.input.order_seed import OrderSeed, ShuffledBatches, has_unseeded_shuffle
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
    adapter: DataAdapter,
    *,
    coordinator: Any,
    workers: int,
    period_steps: int,
    seed: OrderSeed | None = None,
) -> BatchSource:
    """Return the source of an input: on the workers if possible, else fed by the chief.

    Args:
        adapter: what Keras made of the arguments of `fit` or `evaluate`.
        coordinator: for pipelines that run on workers.
        workers: how many there are.
        period_steps: of a worker, for one ticket of the servers.
        seed: from which the order of the data follows; None: it is left to chance.
    """
    if isinstance(adapter, DatasetFunctionAdapter):
        if adapter.shards is not None:
            return ShardPipelines(
                adapter.function, shards=adapter.shards, coordinator=coordinator, workers=workers
            )
        return WorkerPipelines(adapter.function, coordinator=coordinator, workers=workers)
    if ResidentArrays.can_hold(adapter):
        return ResidentArrays(adapter, seed)
    made = adapter.get_tf_dataset()
    dataset = move_to_this_task(made)
    try:
        return WorkerDataset(
            dataset, identity=made, coordinator=coordinator, workers=workers, seed=seed
        )
    except NotPortableError as reason:
        chief = coordinator.strategy.runtime.topology.chief
        return Feeder(dataset, reason=str(reason), device=chief, period_steps=period_steps)


@dataclass(frozen=True)
class EpochProgress:
    """How far an epoch has come, at a moment when no worker takes part.

    Args:
        steps: that were applied, each once; they are the first ones of the epoch.
        metrics: the variables of the metrics that these have changed, and their values.
        seeds: the states of seed generators, and their values.
    """

    steps: int = 0
    metrics: Sequence[tuple[Any, np.ndarray[Any, Any]]] = ()
    seeds: Sequence[tuple[Any, np.ndarray[Any, Any]]] = ()


class PassPosition(NamedTuple):
    """The place in the data where an epoch begins: the number of the pass, and steps before it."""

    number: int
    steps: int


class TicketRunRequest:
    """A request to the train or test function to run this epoch up to a step.

    Attributes:
        source: where batches come from.
        data_pass: the source's current pass over the data.
        offset_steps: how far the pass had come when the epoch began.
        tickets: steps of the epoch, None when only the data know.
        upto_steps: steps of the epoch that shall be done when the function returns.
        position: where the epoch begins in the data.
        progress: how far the epoch has come before its run, or when that has ended.
    """

    def __init__(
        self, source: Any, data_pass: Any, *, offset_steps: int, tickets: int | None
    ) -> None:
        self.source, self.data_pass = source, data_pass
        self.offset_steps, self.tickets = offset_steps, tickets
        self.upto_steps = 0
        self.position = PassPosition(0, 0)
        self.progress = EpochProgress()

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
        resume = strategy.run_state.resume if fits else None
        seed = None if resume is None else resume.order_seed
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
        if seed and isinstance(x, keras.utils.PyDataset) and x.num_batches and options["shuffle"]:
            x, options["shuffle"] = ShuffledBatches(x, seed), False
        super().__init__(x=x, **options)
        self.source = choose_source(
            self.data_adapter,
            coordinator=strategy.coordinator,
            workers=workers,
            period_steps=period_steps_of(strategy.consistency),
            seed=seed,
        )
        if isinstance(self.source, Feeder):
            self.source.until_seen = strategy.run_state.recovery is not None
            self.source.begins_anew = self._find_why_anew(x, seed)
        self._strategy = strategy
        self.request: TicketRunRequest | None = None  # of the newest epoch that has begun
        self._resume = resume
        if resume is not None:
            resume.use_input(self)

    @property
    def batch_spec(self) -> Any:
        return self.source.batch_spec

    @property
    def next_position(self) -> PassPosition:
        """The position in the data at which the next epoch begins."""
        if self.steps_per_epoch and self._current_iterator is not None:
            return PassPosition(self._current_iterator.number, self._steps_seen)
        return PassPosition(self.source.next_pass, 0)

    def go_on_at(self, position: PassPosition, *, epochs: int) -> None:
        """Begin the next epoch where another process has begun it.

        Args:
            position: in the data.
            epochs: that have ended there; a `PyDataset` may change at the end of each.
        """
        dataset: Any = getattr(self.data_adapter, "py_dataset", None)
        for _ in range(0 if dataset is None else epochs):
            dataset.on_epoch_begin()
            dataset.on_epoch_end()
        self.source.skip_passes(position.number)
        if position.steps:
            self._current_iterator = iter(self._get_iterator())
            self._steps_seen = position.steps

    def _find_why_anew(self, x: Any, seed: OrderSeed | None) -> str:
        """Return why the chief cannot read the batches of a pass again; empty if it can."""
        if isinstance(x, tf.data.Dataset):
            return "it shuffles without a seed" if has_unseeded_shuffle(x) else ""
        if isinstance(x, keras.utils.PyDataset):
            return "a pass over it takes several epochs" if self.steps_per_epoch else ""
        is_array = isinstance(self.data_adapter, ArrayDataAdapter)
        if is_array and not (self.data_adapter._shuffle and seed is not None and seed.varies):
            return ""
        return "the chief cannot read the same batches again"

    def _get_iterator(self) -> Any:
        return _Passes(self.source)

    def __iter__(self) -> Iterator[Any]:
        self.request = None
        self._progress = EpochProgress() if self._resume is None else self._resume.begin_input()
        steps_before = self._steps_seen if self._current_iterator is not None else 0
        self._offset_steps = steps_before if self.steps_per_epoch else 0
        return super().__iter__()

    def __next__(self) -> tuple[int, int, TicketRunRequest]:
        begin, end, data_pass = next(self._epoch_iterator)
        if self.request is None:
            for later in self._epoch_iterator if end < self._progress.steps else ():
                begin, end, data_pass = later  # the last one if all are done: for its results
                if end >= self._progress.steps:
                    break
            self.request = TicketRunRequest(
                self.source,
                data_pass.value,
                offset_steps=self._offset_steps,
                tickets=self._tickets_of_epoch(),
            )
            self.request.position = PassPosition(data_pass.number, self._offset_steps)
            self.request.progress = self._progress
        request = self.request
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
        if epoch_runner is not None and epoch_runner.has_started(self.request):
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


class _Passes:
    """An iterable that starts a new pass over the data."""

    def __init__(self, source: BatchSource) -> None:
        self._source = source

    def __iter__(self) -> _Pass:
        number = self._source.next_pass
        return _Pass(self._source.new_pass(), number)


class _Pass:
    def __init__(self, value: Any, number: int) -> None:
        self.value, self.number = value, number

    def __iter__(self) -> _Pass:
        return self

    def __next__(self) -> Any:
        raise StopIteration  # Keras hands it on and never draws from it
