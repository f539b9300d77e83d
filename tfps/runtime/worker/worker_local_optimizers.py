"""The optimizers that a worker runs itself, and what they keep there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.worker_local_variable import ON_WORKER, WorkerLocalVariable
from tfps.optimizers.local_update import apply_locally
from tfps.runtime.program.schedule import LocalTraining
from tfps.runtime.worker.worker_copies import WorkerCopies


class WorkerLocalOptimizers:
    """Optimizers whose slots and counts stay on the worker from one closure to the next.

    Args:
        local: which they are.
        copies: the worker's, of the weights, the counts and the learning rates.
        container: of the job.
        role: what is kept, see `bridge.worker_local_variable.worker_local_name`.
    """

    def __init__(
        self,
        local: LocalTraining,
        *,
        copies: WorkerCopies,
        container: str,
        role: str = ON_WORKER,
    ) -> None:
        self.counts = local.counts
        self._copies = copies
        self._kept = {
            id(variable): WorkerLocalVariable(variable, container=container, role=role)
            for variable in local.slots
        }

    def prepare(self, fetch: Callable[[], Iterable[tuple[Any, tf.Tensor]]]) -> None:
        """Give a worker that is new the slots as they begin; its optimizers count from 0.

        Args:
            fetch: the slots, as (Keras variable, value), from the servers.
        """

        def load() -> tf.Tensor:
            for count in self.counts:
                self._kept[id(count)].begin_with(tf.zeros([], count._dtype))
            own = {id(count) for count in self.counts}
            for variable, value in fetch():
                if id(variable) not in own:
                    # Those of another optimizer, that the worker has used before, stay.
                    self._kept[id(variable)].begin_with(value)
            return tf.constant(0)

        is_known = tf.reduce_all([variable.is_kept for variable in self._kept.values()])
        tf.cond(is_known, lambda: tf.constant(0), load)

    def kept(self, variable: Any) -> WorkerLocalVariable | None:
        """What is kept of a variable; one object, by which TensorFlow orders reads and writes."""
        return self._kept.get(id(variable))

    def count(self, count: Any) -> tf.Tensor:
        """How many updates of the worker one of the counts has seen."""
        return self._kept[id(count)].read_value()

    def apply(
        self, optimizer: Any, gradients: Sequence[tf.Tensor], variables: Sequence[Any]
    ) -> None:
        """Change the worker's copies as one machine would, on all devices."""
        counts = [v for v in self.counts if any(v is own for own in optimizer.variables)]
        before = [self.count(count) for count in counts]
        own = [(v, self._kept[id(v)]) for v in optimizer.variables if id(v) in self._kept]
        rates = [v for v in optimizer.variables if id(v) not in self._kept]
        touched = [(v, self._copies.on(0, v)) for v in (*variables, *rates)]
        apply_locally(
            optimizer,
            gradients,
            variables,
            copies=[*own, *touched],
            updates=self._copies.read,
        )
        if len(self._copies) > 1:
            for variable in variables:
                self._copies.load(variable, self._copies.read(variable))
        # A schedule goes by the updates of all workers, as far as this one has heard of them.
        for count, old in zip(counts, before, strict=True):
            self._copies.load(count, self._copies.read(count) + self.count(count) - old)
