"""The scope in which a model's own step is traced: its variables are the worker's copies."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR

from tfps.bridge import tensorflow_private as private
from tfps.errors import TfpsError

_local = threading.local()


class StepTrace(Protocol):
    """What a step that is being traced answers to Keras."""

    @property
    def position(self) -> Any:
        """Of the step's ticket in its round; None while the step is only looked at."""

    def value_of(self, keras_variable: Any) -> Any:
        """The worker's copy that stands for a Keras variable."""

    def assign(self, keras_variable: Any, value: Any) -> None:
        """Write the worker's copy."""

    def apply(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        """What `optimizer.apply(gradients, variables)` means in this step."""

    def look_up(self, keras_variable: Any, ids: tf.Tensor) -> tf.Tensor | None:
        """Rows of a table that a worker has no copy of; None: it has, and looks them up there."""

    def normalizes(self, layer: Any, *, over_all: bool) -> None:
        """A layer normalizes a batch by its own mean and variance, of all or of masked places."""

    def draw_seed(self) -> tf.Tensor | None:
        """A seed for a draw of `tf.random`, int64 [2]; None: TensorFlow draws as it does."""

    def graph_ends(self, graph: Any) -> None:
        """The graph of a function, a branch or a loop inside the step is complete."""

    def once(self, function: Callable[..., Any], tensors: Sequence[tf.Tensor]) -> Any:
        """Call a function once for the whole batch, with the rows of all devices."""


def current_step() -> StepTrace | None:
    """The step that this thread traces, or None."""
    return getattr(_local, "step", None)


def known_value(keras_variable: Any) -> tf.Tensor:
    """A variable's value as this thread knows it: in a step, that of the worker's own copy."""
    return tf.convert_to_tensor(keras_variable.value)


def refuse_later(error: Exception) -> None:
    """Note why what is traced cannot work; raised here, AutoGraph would make another error of it.

    Args:
        error: that `refusals` raises, if it is open around the trace.
    """
    _local.refusal = error


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Raise at its end what `refuse_later` was called with inside, on this thread.

    And what was raised in `errors_as_raised`, in the place of the error that AutoGraph made of it.
    """
    _local.refusal = _local.raised = None
    try:
        yield
    except Exception as error:
        if _local.raised is None or str(_local.raised) not in str(error):
            raise
        raise _local.raised from error
    if _local.refusal is not None:
        raise _local.refusal


@contextlib.contextmanager
def errors_as_raised() -> Iterator[None]:
    """Errors of tfps reach whoever schedules the function that is traced as they are raised here.

    AutoGraph makes others of them, which nobody can catch by their class.
    """
    try:
        yield
    except TfpsError as error:
        _local.raised = error
        raise


class StepScope(keras.StatelessScope):
    """Sends every read and write of a Keras variable to the step that is being traced."""

    def __init__(self, step: StepTrace) -> None:
        super().__init__(collect_losses=True, initialize_variables=False)
        self._step = step
        self._previous: StepTrace | None = None

    def get_current_value(self, variable: Any) -> Any:
        return self._step.value_of(variable)

    def add_update(self, update: Any) -> None:
        variable, value = update
        self._step.assign(variable, tf.cast(value, variable._dtype))

    def __enter__(self) -> StepScope:
        self._previous = current_step()
        _local.step = self._step
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        _local.step = self._previous
        super().__exit__(*exception)


def is_global_generator(keras_variable: Any) -> bool:
    """Whether it is the state of the generator that `seed=None` stands for; it counts nothing."""
    generator = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR)
    return generator is not None and generator.state is keras_variable


@contextlib.contextmanager
def outside_the_step() -> Iterator[None]:
    """Leave the trace: build optimizers and server functions eagerly, with real variables."""
    with without_scope(), tf.init_scope(), private.default_replica_context():
        yield


@contextlib.contextmanager
def without_scope() -> Iterator[None]:
    """Stay in the trace's graph, but let Keras variables be what they hold."""
    step = current_step()
    scope = global_state.get_global_attribute("stateless_scope")
    _local.step = None
    global_state.set_global_attribute("stateless_scope", None)
    try:
        yield
    finally:
        _local.step = step
        global_state.set_global_attribute("stateless_scope", scope)
