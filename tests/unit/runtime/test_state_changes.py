"""How a step changes the state of a metric is found in its graph, whatever the batches hold."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import keras
import keras_rs
import pytest
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.variables.worker_variable import WorkerVariable
from tfps.metrics.state_change import Change
from tfps.runtime.program.state_changes import StateChanges


def find_changes(
    variables: Sequence[Any], update: Callable[..., Any], *specs: tf.TensorSpec
) -> StateChanges:
    """Trace an update as a step is traced, and find how it changes variables."""
    found: list[StateChanges] = []

    def traced(*batch: tf.Tensor) -> None:
        copies = {id(variable): WorkerVariable(variable) for variable in variables}
        mapping = [(variable, copies[id(variable)]) for variable in variables]
        scope = _CopyScope(mapping)
        with scope:
            update(*batch)
        handles = [copies[id(variable)].handle for variable in variables]
        shapes = [tf.TensorSpec(v.shape, v.dtype) for v in variables]
        found.append(StateChanges(private.current_graph(), handles=handles, specs=shapes))

    tf.function(traced, autograph=False).get_concrete_function(*specs)
    return found[0]


def changes_by(
    variables: Sequence[Any], update: Callable[..., Any], *specs: tf.TensorSpec
) -> list[Change]:
    """Trace an update as a step is traced, and say how it changes variables."""
    return find_changes(variables, update, *specs).changes


class _CopyScope(keras.StatelessScope):
    """Sends reads and writes to copies, as `bridge.step_scope.StepScope` does."""

    def __init__(self, mapping: Sequence[tuple[Any, WorkerVariable]]) -> None:
        super().__init__()
        self._copies = {id(variable): copy for variable, copy in mapping}

    def get_current_value(self, variable: Any) -> Any:
        return self._copies.get(id(variable))

    def add_update(self, update: Any) -> None:
        variable, value = update
        if id(variable) in self._copies:  # else it is the state of a seed generator
            self._copies[id(variable)].assign(tf.cast(value, variable._dtype))


class State(keras.metrics.Metric):
    """A number, a vector, a flag and a count."""

    def __init__(self) -> None:
        super().__init__()
        self.number = self.add_variable((), "zeros", name="number")
        self.vector = self.add_variable((3,), "ones", name="vector")
        self.flag = self.add_variable((), "zeros", dtype="bool", name="flag")
        self.count = self.add_variable((), "zeros", dtype="int32", name="count")


ops = keras.ops


def _grow(s: State, by: Any) -> Any:
    s.number.assign_add(by)
    return tf.constant(0)


def _be_at_least(s: State, least: Any) -> Any:
    s.number.assign(ops.maximum(s.number, least))
    return tf.constant(0)


def _loop(body: Callable[[], Any]) -> Any:
    return tf.while_loop(lambda i: i < 3, lambda i: (body(), i + 1)[1:], [tf.constant(0)])


def _align(x: Any) -> Any:
    """Return a loss whose loop TensorFlow makes of `Defun`s."""
    logits = tf.stack([[x[:3]]] * 4)
    lengths = {"label_length": [1], "logit_length": [4]}
    return tf.nn.ctc_loss([[1]], tf.reshape(logits, [4, 1, 3]), **lengths, blank_index=0)[0]


def _swap(s: State) -> None:
    for _ in range(2):
        s.vector.assign(ops.roll(s.vector, 1))


# What an update does with a state and a batch of numbers, and what becomes of the number, the
# vector and the flag.
K, A, R, L, N, M = Change
UPDATES: dict[str, tuple[Callable[[State, Any], Any], tuple[Change, Change, Change]]] = {
    "nothing": (lambda s, x: ops.sum(s.number + x), (K, K, K)),
    "adds": (lambda s, x: s.number.assign_add(ops.sum(x)), (A, K, K)),
    "adds twice": (
        lambda s, x: [s.number.assign(s.number + each) for each in (1.0, x[0])],
        (A, K, K),
    ),
    "takes away": (lambda s, x: s.vector.assign_sub(x[:3]), (K, A, K)),
    "adds at places": (
        lambda s, x: s.vector.assign(tf.tensor_scatter_nd_add(s.vector, [[1]], x[:1])),
        (K, A, K),
    ),
    "reshapes": (lambda s, x: s.vector.assign(tf.reshape(s.vector, [3]) + x[:3]), (K, A, K)),
    "is wider meanwhile": (
        lambda s, x: s.number.assign(tf.cast(tf.cast(s.number, "float64") + 1.0, "float32")),
        (A, K, K),
    ),
    "largest": (lambda s, x: s.number.assign(ops.maximum(s.number, ops.max(x))), (R, K, K)),
    "smallest": (lambda s, x: s.vector.assign(ops.minimum(x[:3], s.vector)), (K, L, K)),
    "any": (lambda s, x: s.flag.assign(ops.logical_or(s.flag, x[0] > 0)), (K, K, R)),
    "all": (lambda s, x: s.flag.assign(ops.logical_and(s.flag, x[0] > 0)), (K, K, L)),
    "in a branch": (
        lambda s, x: tf.cond(x[0] > 0, lambda: _grow(s, 1.0), lambda: tf.constant(0)),
        (A, K, K),
    ),
    "one or the other": (
        lambda s, x: s.vector.assign(tf.where(x[:3] > 0, s.vector + x[:3], s.vector)),
        (K, A, K),
    ),
    "in a loop": (lambda s, x: _loop(lambda: _grow(s, x[0])), (A, K, K)),
    "behind a loop without graphs": (lambda s, x: s.number.assign_add(_align(x)), (A, K, K)),
    "in a function": (lambda s, x: tf.function(_grow)(s, x[0]), (A, K, K)),
    "the last": (lambda s, x: s.number.assign(x[0]), (N, K, K)),
    "a mean that moves": (lambda s, x: s.number.assign(0.9 * s.number + 0.1 * x[0]), (M, K, K)),
    "doubles": (lambda s, x: s.number.assign(s.number + s.number), (M, K, K)),
    "largest, then adds": (
        lambda s, x: s.number.assign(ops.maximum(s.number, x[0]) + 1.0),
        (M, K, K),
    ),
    "adds what depends on another": (lambda s, x: s.number.assign_add(s.vector[0]), (M, K, K)),
    "adds if the state says so": (
        lambda s, x: tf.cond(s.number < 5, lambda: _grow(s, 1.0), lambda: tf.constant(0)),
        (M, K, K),
    ),
    "adds as long as the state says so": (
        lambda s, x: tf.while_loop(
            lambda i: s.number < 5.0, lambda i: (_grow(s, 1.0), i)[1:], [tf.constant(0)]
        ),
        (M, K, K),
    ),
    "adds in one branch, takes the largest in the other": (
        lambda s, x: tf.cond(x[0] > 0, lambda: _grow(s, 1.0), lambda: _be_at_least(s, 3.0)),
        (M, K, K),
    ),
    "turns around": (lambda s, x: _swap(s), (K, M, K)),
    "only where it is new": (
        lambda s, x: s.vector.assign(ops.where(s.vector > 0, s.vector, x[:3])),
        (K, M, K),
    ),
    "narrower meanwhile": (
        lambda s, x: s.number.assign(tf.cast(tf.cast(s.number, "int32") + 1, "float32")),
        (M, K, K),
    ),
}


@pytest.mark.parametrize("name", UPDATES)
def test_change(name: str) -> None:
    update, expected = UPDATES[name]
    state = State()
    *found, count = changes_by(
        state.variables, lambda x: update(state, x), tf.TensorSpec([None], tf.float32)
    )
    assert tuple(found) == expected
    assert count == Change.KEPT


# What these are made with, where their classes want something, and what they are updated with.
MADE_WITH: dict[str, tuple[Any, ...]] = {
    "MeanIoU": (3,),
    "IoU": (3, [0, 1]),
    "BinaryIoU": ([0, 1],),
    "OneHotIoU": (3, [0, 1]),
    "OneHotMeanIoU": (3,),
    "MeanMetricWrapper": (lambda y, p: ops.abs(y - p),),
    "PrecisionAtRecall": (0.5,),
    "RecallAtPrecision": (0.5,),
    "SensitivityAtSpecificity": (0.5,),
    "SpecificityAtSensitivity": (0.5,),
}
ONE_ARGUMENT = ("Mean", "Sum")
LABELS = (
    "SparseCategoricalAccuracy",
    "SparseTopKCategoricalAccuracy",
    "SparseCategoricalCrossentropy",
    "MeanIoU",
    "IoU",
)
COUNTED = [
    *(each for name, each in inspect.getmembers(keras.metrics, inspect.isclass)),
    *(each for name, each in inspect.getmembers(keras_rs.metrics, inspect.isclass)),
]
COUNTED.remove(keras.metrics.Metric)


@pytest.mark.parametrize(
    "is_weighted", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["plain", "weighted"]
)
@pytest.mark.parametrize("kind", COUNTED, ids=lambda kind: kind.__name__)
def test_states_of_keras_add_up(kind: Any, is_weighted: bool) -> None:
    name, spec = kind.__name__, tf.TensorSpec([None, 3], tf.float32)
    metric = kind(*MADE_WITH.get(name, ()))
    target = tf.TensorSpec([None], tf.int32) if name in LABELS else spec
    specs = [spec] if name in ONE_ARGUMENT else [target, spec]
    if name in ("MeanIoU", "IoU"):
        specs = [target, target]
    if is_weighted:
        specs.append(spec if name == "BinaryIoU" else tf.TensorSpec([None], tf.float32))
    metric.update_state(
        *(tf.ones([3 if d is None else d for d in s.shape], s.dtype) for s in specs)
    )
    found = changes_by(metric.variables, metric.update_state, *specs)
    assert found
    assert set(found) <= {Change.ADDED, Change.KEPT}
    assert Change.ADDED in found


def test_the_gradient_through_a_loop_depends_on_no_state() -> None:
    """The gradient adds inputs to the loop, as in a recurrent layer, that are made after it."""
    state, gradients = State(), list[tf.Tensor]()

    def update(x: tf.Tensor, turns: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            tape.watch(x)
            _, y = tf.while_loop(
                lambda turn, _: turn < turns, lambda turn, y: (turn + 1, tf.tanh(y * x)), [0, x]
            )
        gradients.append(tape.gradient(y, x))
        state.number.assign_add(y)
        gradients.append(gradients[0] * state.number.value)

    specs = [tf.TensorSpec([], tf.float32), tf.TensorSpec([], tf.int32)]
    found = find_changes([state.number], update, *specs)
    assert found.changes == [Change.ADDED]
    assert [found.depends_on_state(each) for each in gradients] == [False, True]
