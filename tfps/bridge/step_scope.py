"""Defines the scope in which a model's step is traced with the worker's copies of variables."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import keras
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.keras_private import get_global_generator, global_state
from tfps.errors import TfpsError

_local = threading.local()


class StepTrace(Protocol):
    """A step that is being traced, to which Keras's reads, writes and updates are sent."""

    @property
    def position(self) -> Any:
        """The position of the step's ticket in its ticket run; None during a trial trace."""

    def get_copy(self, keras_variable: Any) -> Any:
        """Return the worker's copy of a Keras variable."""

    def assign(self, keras_variable: Any, value: Any) -> None:
        """Assign a value to the worker's copy of a Keras variable."""

    def apply(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        """Handle a call of `optimizer.apply(gradients, variables)` in this step."""

    def look_up(self, keras_variable: Any, ids: tf.Tensor) -> tf.Tensor | None:
        """Return rows of a table on servers; None if the worker has a copy of the whole table."""

    def on_normalization(self, layer: Any, *, uses_whole_batch: bool) -> None:
        """Handle a layer's normalization by the moments of the whole batch or its unmasked part."""

    def draw_seed(self) -> tf.Tensor | None:
        """Return a seed for a draw of `tf.random`, int64 [2]; None to leave it to TensorFlow."""

    def on_graph_complete(self, graph: Any) -> None:
        """Handle the completed graph of a function, a branch or a loop inside the step."""

    def merge_replicas(self, function: Callable[..., Any], tensors: Sequence[tf.Tensor]) -> Any:
        """Call a function once for the whole batch, with the rows of all devices."""


def current_step() -> StepTrace | None:
    """Return the step that this thread traces, or None."""
    return getattr(_local, "step", None)


def read_current_value(keras_variable: Any) -> tf.Tensor:
    """Read a Keras variable, or in a step the worker's copy of it."""
    return tf.convert_to_tensor(keras_variable.value)


def record_trace_error(error: Exception) -> None:
    """Record an error for `raise_recorded_errors`, since AutoGraph would replace one in the trace.

    Args:
        error: the reason why the traced code cannot work.
    """
    _local.trace_error = error


@contextlib.contextmanager
def raise_recorded_errors() -> Iterator[None]:
    """Raise, at the end of the context, the error that this thread gave to `record_trace_error`.

    Also raises the original error of `record_tfps_errors` instead of AutoGraph's version of it.
    """
    _local.trace_error = _local.tfps_error = None
    try:
        yield
    except Exception as error:
        if _local.tfps_error is None or str(_local.tfps_error) not in str(error):
            raise
        raise _local.tfps_error from error
    if _local.trace_error is not None:
        raise _local.trace_error


@contextlib.contextmanager
def record_tfps_errors() -> Iterator[None]:
    """Record errors of tfps, so that `raise_recorded_errors` raises them unchanged.

    AutoGraph replaces them by errors of other classes, which a caller cannot catch by type.
    """
    try:
        yield
    except TfpsError as error:
        _local.tfps_error = error
        raise


class StepScope(keras.StatelessScope):
    """Sends every read and write of a Keras variable to the step that is being traced.

    Attributes:
        created_variables: the Keras variables that the traced code has made, after the scope.
    """

    def __init__(self, step: StepTrace) -> None:
        super().__init__(collect_losses=True, initialize_variables=False)
        self._step = step
        self._previous: StepTrace | None = None
        self._waiting: list[Any] = []
        self.created_variables: list[Any] = []

    def get_current_value(self, variable: Any) -> Any:
        return self._step.get_copy(variable)

    def add_update(self, update: Any) -> None:
        variable, value = update
        self._step.assign(variable, tf.cast(value, variable._dtype))

    def __enter__(self) -> StepScope:
        self._previous = current_step()
        _local.step = self._step
        self._waiting = _exchange_uninitialized([])
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        _local.step = self._previous
        super().__exit__(*exception)
        # Keras would give them values at the end of the next scope, of any model and strategy.
        self.created_variables = _exchange_uninitialized(self._waiting)
        if self._previous is not None:
            self._waiting += self.created_variables  # the outer scope's, which stays open


def _exchange_uninitialized(variables: list[Any]) -> list[Any]:
    """Set the variables to which Keras gives values later, and return the previous ones."""
    before: list[Any] = global_state.get_global_attribute("uninitialized_variables") or []
    global_state.set_global_attribute("uninitialized_variables", variables)
    return before


def is_global_generator(keras_variable: Any) -> bool:
    """Return whether a variable is the state of Keras's global generator, used by `seed=None`."""
    generator = get_global_generator()
    return generator is not None and generator.state is keras_variable


@contextlib.contextmanager
def outside_step() -> Iterator[None]:
    """Leave the trace, to build optimizers and server functions eagerly, with real variables."""
    with without_scope(), tf.init_scope(), private.default_replica_context():
        yield


@contextlib.contextmanager
def without_scope() -> Iterator[None]:
    """Use the real values of Keras variables while the context is open; stay in the same graph."""
    step = current_step()
    scope = global_state.get_global_attribute("stateless_scope")
    _local.step = None
    global_state.set_global_attribute("stateless_scope", None)
    try:
        yield
    finally:
        _local.step = step
        global_state.set_global_attribute("stateless_scope", scope)
