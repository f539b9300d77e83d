"""A segment of a slab is read, written, saved and differentiated like a variable of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.messages import raises
from tests.unit.optimizers.server import LocalServer
from tfps.errors import UnsupportedError

VALUES = {
    "kernel": np.arange(12, dtype="float32").reshape(4, 3),
    "bias": np.array([1.0, 2.0, 3.0], "float32"),
    "scale": np.array(7.0, "float32"),
}


class Slab:
    """Three Keras variables in one slab."""

    def __init__(self) -> None:
        self.server = LocalServer()
        self.variables = {n: self.server.variable(v, name=n) for n, v in VALUES.items()}
        self.kernel, self.bias, self.scale = self.variables.values()
        optimizer = keras.optimizers.SGD()
        optimizer.build(list(self.variables.values()))
        assert len(self.server.lay_out((optimizer, list(self.variables.values())))) == 1

    def assert_values(self, **changed: Any) -> None:
        for name, variable in self.variables.items():
            np.testing.assert_array_equal(variable.numpy(), changed.get(name, VALUES[name]))


@pytest.fixture
def slab() -> Slab:
    return Slab()


def test_reads(slab: Slab) -> None:
    slab.assert_values()
    native = slab.kernel.value
    kernel = VALUES["kernel"]
    np.testing.assert_array_equal(native.read_value(), kernel)
    np.testing.assert_array_equal(native.value(), kernel)
    np.testing.assert_array_equal(tf.convert_to_tensor(slab.kernel), kernel)
    np.testing.assert_array_equal(slab.kernel + 1, kernel + 1)
    np.testing.assert_array_equal(native.sparse_read([2, 0]), kernel[[2, 0]])
    np.testing.assert_array_equal(tf.gather(native, [2, 0]), kernel[[2, 0]])
    np.testing.assert_array_equal(native.gather_nd([[1, 2]]), kernel[[1], [2]])
    np.testing.assert_array_equal(slab.kernel[1:3], kernel[1:3])
    assert float(slab.scale) == 7.0
    assert native.is_initialized()
    assert (native.shape, native.dtype, native.trainable) == ((4, 3), tf.float32, True)


WRITES: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "assign": (lambda v: v.assign(np.ones([4, 3], "float32")), np.ones_like),
    "assign_add": (lambda v: v.assign_add(np.full([4, 3], 2, "float32")), lambda a: a + 2),
    "assign_sub": (lambda v: v.assign_sub(np.full([4, 3], 2, "float32")), lambda a: a - 2),
    "scatter_add": (lambda v: v.scatter_add(_rows()), lambda a: _changed(a, add=True)),
    "scatter_update": (lambda v: v.scatter_update(_rows()), lambda a: _changed(a, add=False)),
    "slice": (
        lambda v: v[1:3].assign(np.full([2, 3], 5, "float32")),
        lambda a: _changed(a, rows=5),
    ),
}


def _rows() -> tf.IndexedSlices:
    return tf.IndexedSlices(tf.fill([2, 3], 5.0), tf.constant([1, 2]))


def _changed(array: np.ndarray, *, add: bool = False, rows: float = 5.0) -> np.ndarray:
    new = array.copy()
    new[1:3] = new[1:3] + rows if add else rows
    return new


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_a_write_changes_its_own_part(slab: Slab, name: str, traced: bool) -> None:
    write, expected = WRITES[name]
    native = slab.kernel.value
    if traced:
        tf.function(lambda: write(native) is None)()
    else:
        write(native)
    slab.assert_values(kernel=expected(VALUES["kernel"]))


def test_keras_writes(slab: Slab) -> None:
    slab.bias.assign([4.0, 5.0, 6.0])
    slab.scale.assign_add(1.0)
    slab.kernel.assign_sub(VALUES["kernel"])
    slab.assert_values(bias=[4, 5, 6], scale=8, kernel=np.zeros([4, 3]))


def test_reads_share_the_slab_again_after_a_write(slab: Slab) -> None:
    """TensorFlow copies the whole vector at each read once a part was written, unless told."""
    slab.bias.assign([4.0, 5.0, 6.0])
    whole = slab.bias.value.slab
    with tf.device(whole.device):
        first, second = (
            tf.raw_ops.ReadVariableOp(resource=whole.handle, dtype=tf.float32) for _ in range(2)
        )
    buffers = [np.frombuffer(read, np.float32).ctypes.data for read in (first, second)]
    assert buffers[0] == buffers[1]


def test_a_wrong_shape_is_refused(slab: Slab) -> None:
    with raises(ValueError, "bias", received="shape (4,)", remedy="expected (3,)"):
        slab.bias.value.assign(np.zeros([4], "float32"))
    with raises(UnsupportedError, "kernel", received="shares a slab", remedy="assign()"):
        slab.kernel.value.scatter_mul(_rows())
    slab.assert_values()


def _loss(slab: Slab) -> tf.Tensor:
    return tf.reduce_sum(slab.kernel**2) + 3 * tf.reduce_sum(tf.gather(slab.bias.value, [0, 0, 2]))


def _eagerly(slab: Slab) -> Any:
    with tf.GradientTape() as tape:
        loss = _loss(slab)
    return tape.gradient(loss, [slab.kernel, slab.bias, slab.scale])


def _function_under_tape(slab: Slab) -> Any:
    function = tf.function(lambda: _loss(slab))
    with tf.GradientTape() as tape:
        loss = function()
    return tape.gradient(loss, [slab.kernel, slab.bias, slab.scale])


def _tape_in_function(slab: Slab) -> Any:
    return tf.function(lambda: [g for g in _eagerly(slab) if g is not None])()


@pytest.mark.parametrize("way", [_eagerly, _function_under_tape, _tape_in_function])
def test_tapes_find_it(slab: Slab, way: Callable[[Slab], Any]) -> None:
    kernel, bias, *nothing = way(slab)
    np.testing.assert_allclose(kernel, 2 * VALUES["kernel"])
    np.testing.assert_array_equal(tf.convert_to_tensor(bias), [6, 0, 3])
    assert nothing in ([], [None])


def test_second_derivatives(slab: Slab) -> None:
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            loss = tf.reduce_sum(slab.kernel**3)
        gradient = inner.gradient(loss, slab.kernel)
    np.testing.assert_allclose(outer.gradient(gradient, slab.kernel), 6 * VALUES["kernel"])


def test_an_unused_one_has_a_zero_gradient_of_its_shape(slab: Slab) -> None:
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(slab.bias.value)
    zero = tf.UnconnectedGradients.ZERO
    gradient = tape.gradient(loss, slab.kernel.value, unconnected_gradients=zero)
    np.testing.assert_array_equal(gradient, np.zeros([4, 3]))


def test_checkpoint_of_a_slab_restores_into_plain_variables_and_back(
    slab: Slab, tmp_path: Path
) -> None:
    checkpoint = tf.train.Checkpoint(**slab.variables)
    path = checkpoint.write(str(tmp_path / "slab"))
    plain = {n: keras.Variable(np.zeros_like(v), name=n) for n, v in VALUES.items()}
    tf.train.Checkpoint(**plain).read(path).assert_consumed()
    for name, variable in plain.items():
        np.testing.assert_array_equal(variable.numpy(), VALUES[name])
        variable.assign(VALUES[name] + 1)
    plain_path = tf.train.Checkpoint(**plain).write(str(tmp_path / "plain"))
    assert tf.train.list_variables(plain_path) == tf.train.list_variables(path)
    checkpoint.read(plain_path).assert_consumed()
    slab.assert_values(**{name: value + 1 for name, value in VALUES.items()})


def test_the_strategy_hears_of_every_access(slab: Slab) -> None:
    heard: list[int] = []
    slab.server.storage.on_access = lambda: heard.append(1)
    for act in (
        slab.bias.numpy,
        lambda: slab.bias.assign([0.0, 0.0, 0.0]),
        lambda: slab.bias.value.assign_add([0.0, 0.0, 0.0]),
        lambda: slab.kernel.value.sparse_read([0]),
    ):
        before = len(heard)
        act()
        assert len(heard) > before


def test_a_saved_model_has_variables_of_its_own(slab: Slab, tmp_path: Path) -> None:
    module = tf.Module()
    module.kernel = slab.kernel
    module.double = tf.function(lambda: 2 * slab.kernel, input_signature=[])
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_array_equal(loaded.double(), 2 * VALUES["kernel"])
    loaded.kernel.assign(tf.zeros([4, 3]))
    np.testing.assert_array_equal(loaded.double(), np.zeros([4, 3]))
    slab.assert_values()
