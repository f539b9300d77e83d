"""Whether the states of a metric can be added: tried with the two halves of a batch."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

# Sums in another order differ in the last bits of single precision; a maximum differs as a whole.
TOLERANCE = 1e-3


@contextlib.contextmanager
def updates_watched(metrics: Sequence[Any], seen: Callable[..., None]) -> Iterator[None]:
    """While it is open, each update of the metrics is reported.

    Args:
        metrics: of Keras.
        seen: called after an update with the metric, its own update function and its arguments.
    """

    def watched(metric: Any, update: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(update)
        def update_state(*arguments: Any, **options: Any) -> Any:
            result = update(*arguments, **options)
            seen(metric, update, arguments, options)
            return result

        return update_state

    for metric in metrics:
        metric.__dict__["update_state"] = watched(metric, metric.update_state)
    try:
        yield
    finally:
        for metric in metrics:
            metric.__dict__.pop("update_state", None)


def adds_up(
    variables: Sequence[Any],
    bases: Sequence[np.ndarray[Any, Any]],
    update: Callable[..., Any],
    arguments: tuple[Any, ...],
    options: dict[str, Any],
) -> tf.Tensor:
    """Whether two halves, one after the other, change a metric's state by the sum of their changes.

    Args:
        variables: the metric's, as Keras variables.
        bases: their values after a reset.
        update: the metric's own update function.
        arguments: of an update with a whole batch.
        options: its keyword arguments.

    Returns:
        A boolean scalar; true also where there are no two halves.
    """
    batched = [t for t in tf.nest.flatten((arguments, options)) if _has_rows(t)]
    if not batched:
        return tf.constant(True)
    rows = batched[0].shape[0]
    size = tf.shape(batched[0])[0]

    def half(part: slice) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given, named = tf.nest.map_structure(
            lambda t: t[part] if _has_rows(t) and t.shape[0] == rows else t, (arguments, options)
        )
        return given, named

    def after(state: Sequence[Any], part: slice) -> list[tf.Tensor]:
        given, named = half(part)
        mapping = list(zip(variables, state, strict=True))
        with keras.StatelessScope(state_mapping=mapping) as scope:
            update(*given, **named)
        return [tf.convert_to_tensor(scope.get_current_value(v)) for v in variables]

    def agree() -> tf.Tensor:
        first, second = slice(None, size // 2), slice(size // 2, None)
        start = [tf.constant(base) for base in bases]
        one, two = after(start, first), after(start, second)
        both = after(one, second)
        return tf.reduce_all(
            [
                _equal(x - base, (y - base) + (z - base))
                for base, x, y, z in zip(start, both, one, two, strict=True)
            ]
        )

    return tf.cond(size < 2, lambda: tf.constant(True), agree)


def _has_rows(value: Any) -> bool:
    return tf.is_tensor(value) and isinstance(value, tf.Tensor) and bool(value.shape.rank)


def _equal(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    left, right = tf.cast(left, tf.float64), tf.cast(right, tf.float64)
    scale = 1.0 + tf.maximum(tf.abs(left), tf.abs(right))
    return tf.reduce_all(tf.abs(left - right) <= TOLERANCE * scale)
