"""The mirrored weights and slots of a worker, which outlive its closures."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.variables.worker_local_variable import WorkerLocalTensor, WorkerLocalVariable
from tfps.optimizers.local_update import apply_locally
from tfps.optimizers.wrapped import get_leaf_optimizers
from tfps.runtime.program.program import Program
from tfps.runtime.worker.weight_sums import Group, WeightSums
from tfps.runtime.worker.worker_copies import WorkerCopies

# The name of the number of updates in a worker's copies; see `LedgerLayout.REDUCED`.
UPDATES_NAME = "updates_of_mirrored_weights"
TORN = -1  # while the copies change: a closure that is cut off leaves some that have not
NO_OWNER = "no worker has the newest weights"


class MirroredCopies:
    """Traces what a worker does with its copies of mirrored weights, and with their slots.

    Slots change where they are kept. Weights change in the copies of the step, and are kept after
    each update, so that an error in a step leaves the worker the newest ones.

    Args:
        program: the program of the step.
        copies: the copies of the step.
        sums: adds up tensors of all workers.
        container: the container of the job.
    """

    def __init__(
        self, program: Program, *, copies: WorkerCopies, sums: WeightSums, container: str
    ) -> None:
        mirrored = program.schedule.mirrored
        assert mirrored is not None
        self._program, self._mirrored, self._copies, self._sums = program, mirrored, copies, sums
        self.stored = {
            id(variable): WorkerLocalVariable(variable, container=container)
            for variable in (*mirrored.weights, *mirrored.slots)
        }
        self._updates = WorkerLocalTensor(
            UPDATES_NAME, container=container, shape=[], dtype=tf.int64
        )

    def begin(
        self, group: Group, pull_slots: Callable[[], Sequence[tuple[Any, tf.Tensor]]]
    ) -> tf.Tensor:
        """Give the worker the newest values; return whether all members of its group did.

        Between two runs the servers have them. Within a run, after a worker was lost, those of any
        other worker may be newer.

        Args:
            group: the group that the worker has joined.
            pull_slots: returns the slots, and their values on the servers.
        """

        def load_home() -> tf.Tensor:
            values = pull_slots()
            with self._changing(group.updates):
                for slot, value in values:
                    self.stored[id(slot)].load(value)
            return tf.constant(True)

        return tf.cond(group.home == group.updates, load_home, lambda: self._share(group))

    def _share(self, group: Group) -> tf.Tensor:
        """Give all members the values of one that has the newest. Returns whether it succeeded."""
        self._load_if_missing()
        own = self._updates.read_value() == group.updates
        me = tf.one_hot(self._sums.worker, self._sums.workers, dtype=tf.int64)
        done, (owners,) = self._sums.add_up(group, [me * tf.cast(own, tf.int64)])
        is_there = tf.logical_or(tf.reduce_max(owners) > 0, tf.logical_not(done))
        with tf.control_dependencies([tf.debugging.Assert(is_there, [NO_OWNER])]):
            is_owner = tf.argmax(owners) == self._sums.worker
        kept = list(self.stored.values())

        def send() -> tf.Tensor:
            values = [each.read_value() for each in kept]
            sent = [tf.where(is_owner, value, tf.zeros_like(value)) for value in values]
            sums_done, newest = self._sums.add_up(group, sent)

            def load() -> tf.Tensor:
                by_variable = dict(zip(self.stored, newest, strict=True))
                with self._changing(group.updates, before=tf.where(own, group.updates, TORN)):
                    for slot in self._mirrored.slots:
                        self.stored[id(slot)].load(by_variable[id(slot)])
                    for weight in self._mirrored.weights:
                        self._copies.load(weight, by_variable[id(weight)])
                return tf.constant(True)

            return tf.cond(sums_done, load, lambda: tf.constant(False))

        return tf.cond(done, send, lambda: tf.constant(False))

    def _load_if_missing(self) -> None:
        """Give a new worker values that no one uses."""

        def load() -> tf.Tensor:
            for each in self.stored.values():
                each.load_if_missing(tf.zeros(each.shape, each.dtype))
            self._updates.load(tf.constant(TORN, tf.int64))
            return tf.constant(0)

        tf.cond(self._updates.has_value, lambda: tf.constant(0), load)

    def update(self, means: Sequence[tf.Tensor], number: tf.Tensor) -> None:
        """Trace the update that all workers apply to their copies, from means of gradients."""
        with self._changing(number):
            self._update(means)

    def _update(self, means: Sequence[tf.Tensor]) -> None:
        weights = self._mirrored.weights
        known, slots = {id(v) for v in self._program.variables}, set(map(id, self._mirrored.slots))
        mean_of = dict(zip(map(id, weights), means, strict=True))
        counted = [(self.stored[id(v)], self._read_count(v) + 1) for v in self._mirrored.counts]
        for leaf in get_leaf_optimizers(self._program.calls[0].optimizer):
            own = [v for v in leaf._trainable_variables if id(v) in mean_of]
            if not own:
                continue
            # Learning rates have the values of the servers.
            shared = [v for v in leaf.variables if id(v) in known - slots]
            copied = {id(v): v for v in (*own, *shared)}.values()
            apply_locally(
                leaf,
                [mean_of[id(v)] for v in own],
                own,
                copies=[
                    *((v, self.stored[id(v)]) for v in leaf.variables if id(v) in slots),
                    *((v, self._copies.get_copy(0, v)) for v in copied),
                ],
                read_iterations=self._read_count,
            )
        for count, number in counted:  # also those of optimizers that train only rows
            count.load(number)
        if len(self._copies) > 1:
            for weight in weights:
                self._copies.load(weight, self._copies.read(weight))

    def _read_count(self, count: Any) -> tf.Tensor:
        return self.stored[id(count)].read_value()

    def show_counts(self) -> None:
        """Give the step the counts that it reads, of which servers may know others."""
        known = {id(v) for v in self._program.variables}
        for count in self._mirrored.counts:
            if id(count) in known:
                self._copies.load(count, self._read_count(count))

    @contextlib.contextmanager
    def _changing(self, updates: tf.Tensor, *, before: tf.Tensor | int = TORN) -> Iterator[None]:
        """Mark the copies as torn; then keep the weights, with the number of their updates."""
        with tf.control_dependencies([self._updates.load(tf.cast(before, tf.int64))]):
            yield
            for weight in self._mirrored.weights:
                self.stored[id(weight)].load(self._copies.read(weight))
            changed = [each.read_value() for each in self.stored.values()]
            with tf.control_dependencies(changed):
                self._updates.load(updates)
