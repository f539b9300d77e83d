"""What a worker has made of the weights by itself, from one function to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge.kept_variable import KeptVariable
from tfps.runtime.coordinator.kept_slots import KeptSlots
from tfps.runtime.warm_up.warm_up_sums import sum_dtype

# Apart from what local steps keep: a worker that hung while this was freed may still have it.
WARM = "in_warm_up"
BEGIN, CALLS = f"begin_{WARM}", f"calls_{WARM}"


class KeptWeights:
    """Variables that stay on the worker, what they began with, and how much they were trained.

    Args:
        variables: of Keras.
        container: of the job.
    """

    def __init__(self, variables: Sequence[Any], *, container: str) -> None:
        self._values = {id(v): kept_weight(v, container=container) for v in variables}
        self._begins = {
            id(v): KeptVariable(v, container=container, role=BEGIN, dtype=sum_dtype(v._value))
            for v in variables
        }
        self._calls = {
            id(v): KeptVariable(v, container=container, role=CALLS, shape=(), dtype=tf.float64)
            for v in variables
        }

    @staticmethod
    def note(variables: Sequence[Any], kept: KeptSlots) -> None:
        """Let all of it be freed one day."""
        for role in (WARM, BEGIN, CALLS):
            kept.note(variables, role=role)

    def prepare(self, fetch: Callable[[], Iterable[tuple[Any, tf.Tensor, tf.Tensor]]]) -> None:
        """Give a worker that is new the values to begin with.

        Args:
            fetch: from the servers, as (Keras variable, what workers began with, its value here).
        """

        def load() -> tf.Tensor:
            for variable, begin, value in fetch():
                self._values[id(variable)].begin_with(tf.cast(value, variable._dtype))
                self._begins[id(variable)].begin_with(begin)
                self._calls[id(variable)].begin_with(tf.zeros([], tf.float64))
            return tf.constant(0)

        every = [*self._values.values(), *self._begins.values(), *self._calls.values()]
        is_known = tf.reduce_all([variable.is_kept for variable in every])
        tf.cond(is_known, lambda: tf.constant(0), load)

    def value(self, variable: Any) -> tf.Tensor:
        """As the latest function has left it."""
        return self._values[id(variable)].read_value()

    def change(self, variable: Any, now: tf.Tensor, *, calls: tf.Tensor) -> tf.Tensor:
        """What the difference to the begin, times the optimizer calls, changes by with a function.

        Args:
            variable: of Keras.
            now: its value at the function's end.
            calls: of the function, float64.
        """
        begin, known = self._begins[id(variable)].read_value(), self._calls[id(variable)]
        before = tf.cast(self.value(variable), begin.dtype) - begin
        after = tf.cast(now, begin.dtype) - begin
        count = known.read_value()
        return tf.cast(count + calls, begin.dtype) * after - tf.cast(count, begin.dtype) * before

    def keep(self, variable: Any, now: tf.Tensor, *, calls: tf.Tensor) -> None:
        """Keep what the servers have been told of."""
        known = self._calls[id(variable)]
        known.load(known.read_value() + calls)
        self._values[id(variable)].load(now)


def kept_weight(variable: Any, *, container: str) -> KeptVariable:
    """A worker's own value of a variable, if it trains it."""
    return KeptVariable(variable, container=container, role=WARM)
