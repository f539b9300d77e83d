"""Feed any other dataset: the chief iterates it, and workers request the batches of tickets."""

from __future__ import annotations

import collections
import itertools
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.connection import early_device_error, names_early_device
from tfps.bridge.functions.server_function import trace_server_function
from tfps.bridge.functions.traced_graph import get_dataset_graphs
from tfps.runtime.worker.closure_run import BatchClaim, BatchSource
from tfps.training.input.batch import empty_component, restore_batch


class BatchKeeper:
    """Numbers an iterator's batches, and keeps each until its ticket is closed. Pure.

    A worker's request for a new ticket proves that the one before the last is closed; the batches
    of a lost worker stay until another worker has asked for them, or until the workers are drained.

    Args:
        batches: iterated once, in order. A worker is named by its incarnation.
        period_steps: of a worker, for one ticket of the servers.
        until_seen: keep each batch until the chief has seen its ticket closed: the server that has
            the tickets may be lost, and the chief's look is what it goes on from.

    Where all tickets from some number on may be handed out again, all batches from there on stay.
    """

    def __init__(
        self, batches: Iterator[Any], *, period_steps: int = 1, until_seen: bool = False
    ) -> None:
        self._batches, self._most_open = batches, 2 * period_steps
        self._until_seen = until_seen
        self._first_repeatable: int | None = None
        self._closed: collections.deque[int] = collections.deque()  # not seen by the chief
        self._passed_count = 0  # how many were closed before these
        self._next = 0
        self._kept: dict[int, Any] = {}
        self._requests_of_worker: dict[int, collections.deque[int]] = {}
        self._worker_of_batch: dict[int, int] = {}
        self._lock = threading.Lock()
        self.exhausted = False
        self.failure: Exception | None = None

    @property
    def kept_count(self) -> int:
        """The number of batches that are kept for workers that may request them again."""
        return len(self._kept)

    def get(self, number: int, *, worker: int) -> Any | None:
        """Return the batch with a number, or None if the iterator ended or failed before it."""
        with self._lock:
            while number >= self._next and not self.exhausted:
                try:
                    self._kept[self._next] = next(self._batches)
                    self._next += 1
                except StopIteration:
                    self.exhausted = True
                except Exception as error:  # noqa: BLE001 - the chief raises it
                    # The user's own; a worker would only quote it. To workers it is the end.
                    self.failure = error
                    self.exhausted = True
            batch = self._kept.get(number)
            if batch is not None:
                self._record_request(number, worker)
            return batch

    def skip_to(self, number: int) -> None:
        """Draw the batches before a number, and keep none, if none was drawn yet."""
        if not self._next:
            self._next = sum(1 for _ in itertools.islice(self._batches, number))

    def on_drained(self) -> None:
        """Drop all requested batches, once every issued ticket is closed.

        Those of the last two tickets of every closure stay otherwise, and in lock-step each step
        has its own.
        """
        with self._lock:
            for number in (*self._worker_of_batch, *self._closed):
                if self._first_repeatable is None:
                    self._kept.pop(number, None)
            self._mark_passed()
            self._worker_of_batch.clear()
            self._requests_of_worker.clear()

    def hold_from(self, number: int) -> None:
        """Keep batches from a number on, which may be requested again; drop earlier ones."""
        with self._lock:
            self._first_repeatable = number
            for earlier in [each for each in self._kept if each < number]:
                del self._kept[earlier]

    @property
    def closed(self) -> int:
        """The number of batches whose tickets are closed."""
        with self._lock:
            return self._passed_count + len(self._closed)

    def drop_seen(self, closed: int) -> None:
        """Drop batches, now that the chief has seen the tickets of `closed` batches closed."""
        with self._lock:
            while self._passed_count < closed and self._closed:
                self._kept.pop(self._closed.popleft(), None)
                self._passed_count += 1

    def on_server_return(self) -> None:
        """Keep the batches that the chief has not seen closed, for workers that ask once more."""
        with self._lock:
            self._mark_passed()

    def _mark_passed(self) -> None:
        self._passed_count += len(self._closed)
        self._closed.clear()

    @property
    def drawn(self) -> int:
        """The number of batches that were drawn from the iterator."""
        return self._next

    def _record_request(self, number: int, worker: int) -> None:
        self._worker_of_batch[number] = worker
        numbers = self._requests_of_worker.setdefault(worker, collections.deque())
        numbers.append(number)
        if len(numbers) > self._most_open:
            closed = numbers.popleft()
            if self._worker_of_batch.get(closed) == worker:
                self._worker_of_batch.pop(closed, None)
                if self._first_repeatable is not None:
                    return
                if self._until_seen:
                    self._closed.append(closed)
                else:
                    self._kept.pop(closed, None)


# The feeders that workers may ask, by their numbers, and the chief's functions that reply for all
# feeders of equal types. A new generator finds that of the one before, so no step is traced again.
_feeders: weakref.WeakValueDictionary[int, Feeder] = weakref.WeakValueDictionary()
_functions: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()
_numbers = itertools.count()


def _get_function(types: tuple[tf.DType, ...], device: str) -> Any:
    """Return the chief's function from (position, incarnation, feeder) to a batch."""
    function = _functions.get((types, device))
    if function is None:

        def serve(asked: tf.Tensor) -> list[tf.Tensor]:
            return list(tf.numpy_function(_find_batch, [asked], [tf.bool, *types]))

        signature = [tf.TensorSpec([3], tf.int64)]
        function = trace_server_function(serve, device=device, signature=signature)
        _functions[types, device] = function
    return function


def _find_batch(request: np.ndarray[Any, Any]) -> list[Any]:
    position, incarnation, number = (int(value) for value in request)
    return _feeders[number].find_batch(position, worker=incarnation)


class Feeder(BatchSource):
    """A dataset, generator or `PyDataset`, iterated on the chief.

    One request per step brings a batch to the worker that holds its ticket; each batch is kept
    until it was applied, so a lost worker loses none.

    Args:
        dataset: of batches.
        reason: why the workers do not iterate it themselves.
        device: of the chief.
        period_steps: of a worker, for one ticket of the servers.
    """

    may_widen_spec = True
    until_seen = False  # see `BatchKeeper`

    def __init__(
        self, dataset: tf.data.Dataset, *, reason: str, device: str, period_steps: int = 1
    ) -> None:
        self._dataset, self._reason, self._period_steps = dataset, reason, period_steps
        self.batch_spec = dataset.element_spec
        self._flat_specs = tf.nest.flatten(self.batch_spec, expand_composites=True)
        self.keeper: BatchKeeper | None = None
        self._first_number = 0
        self._chief_device = device
        self._function = _get_function(tuple(spec.dtype for spec in self._flat_specs), device)
        self._number = next(_numbers)
        _feeders[self._number] = self

    @property
    def description(self) -> str:
        return f"a dataset, iterated on the chief and sent batch by batch: {self._reason}"

    def trace_key(self) -> Any:
        return ("feeder", str(self.batch_spec))

    @property
    def input_graphs(self) -> list[Any]:
        return get_dataset_graphs(self._dataset)

    @property
    def failure(self) -> Exception | None:
        """The error that the dataset raised when a batch was drawn from it."""
        return None if self.keeper is None else self.keeper.failure

    def new_pass(self) -> BatchKeeper:
        """Start to iterate over the dataset anew."""
        self.next_pass += 1
        try:
            return BatchKeeper(
                iter(self._dataset), period_steps=self._period_steps, until_seen=self.until_seen
            )
        except tf.errors.OpError as error:
            if not names_early_device(error):
                raise
            raise early_device_error("the dataset") from error

    def skip_passes(self, number: int) -> None:
        while self.next_pass < number:  # a shuffle takes the seeds of a pass, and no batch
            self.new_pass()

    def make_arguments(self, keeper: BatchKeeper, offset_steps: int) -> Any:
        keeper.skip_to(offset_steps)
        self.keeper, self._first_number = keeper, offset_steps
        return (tf.constant(self._number, tf.int64),)

    def get_argument_specs(self, arguments: Any) -> Any:
        return (tf.TensorSpec([], tf.int64),)

    def fetch(self, arguments: Any, claim: BatchClaim) -> tuple[tf.Tensor, Any]:
        (number,) = arguments
        position = tf.where(claim.ticket >= 0, claim.position, -1)
        request = tf.stack([position, claim.incarnation, number])
        outputs = tf.raw_ops.RemoteCall(
            target=self._chief_device,
            args=[request],
            Tout=[tf.bool, *(spec.dtype for spec in self._flat_specs)],
            f=self._function,
        )
        private.run_independently(outputs[0].op)
        is_found, *components = outputs
        return is_found, restore_batch(self.batch_spec, components)

    def hold_from(self, position: int) -> None:
        """Keep batches from a position of the run on, which may be requested again."""
        if self.keeper is not None:
            self.keeper.hold_from(self._first_number + position)

    def on_drained(self) -> None:
        """Drop the batches of all steps so far."""
        if self.keeper is not None:
            self.keeper.on_drained()

    def find_batch(self, position: int, *, worker: int) -> list[Any]:
        """Return whether there is a batch at a position of the run, and its components.

        Args:
            position: below 0, a worker without a ticket asks.
            worker: the incarnation of the worker that asks.
        """
        keeper = self.keeper
        batch = None
        if position >= 0 and keeper is not None:
            batch = keeper.get(position + self._first_number, worker=worker)
        if batch is None:
            return [np.array(False), *(empty_component(spec) for spec in self._flat_specs)]
        flat = tf.nest.flatten(batch, expand_composites=True)
        return [np.array(True), *(component.numpy() for component in flat)]
