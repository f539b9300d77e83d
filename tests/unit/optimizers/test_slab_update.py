"""An optimizer that sees one vector gives the numbers of Keras, variable by variable."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.messages import raises
from tests.unit.optimizers.server import DEVICE, LocalServer
from tfps.bridge.functions.server_function import mask_assignments, trace_server_function
from tfps.optimizers import server_update
from tfps.optimizers.elementwise import ELEMENTWISE, is_elementwise
from tfps.runtime.message.wire import group_by_slab

STEPS = 12
TOLERANCE = 1e-6
RATES = {"Adadelta": 10.0, "Ftrl": 0.1, "SGD": 0.1, "Adagrad": 0.05, "Lion": 0.003}
SHAPES = {"kernel": (5, 7), "bias": (7,), "head_kernel": (7, 3), "head_bias": (3,), "scale": ()}

OPTIMIZERS: dict[str, Any] = {
    name: value
    for name, value in vars(keras.optimizers).items()
    if inspect.isclass(value)
    and issubclass(value, keras.optimizers.Optimizer)
    and value is not keras.optimizers.Optimizer
}
WRAPPERS = {"LossScaleOptimizer", "MultiOptimizer"}
OF_WHOLE_VARIABLES = {"Lamb", "Adafactor", "Muon"}


class ElementwiseSGD(keras.optimizers.SGD):
    tfps_elementwise = True


class UndeclaredSGD(ElementwiseSGD):
    pass


def _excluding() -> Any:
    optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias", "scale"])
    return optimizer


def _multi() -> Any:
    adam, sgd = keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.1, clipvalue=0.5)
    return keras.optimizers.MultiOptimizer(lambda v: adam if "kernel" in v.name else sgd)


VARIANTS: dict[str, Callable[[], Any]] = {
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "amsgrad": lambda: keras.optimizers.Adam(0.01, amsgrad=True),
    "centered": lambda: keras.optimizers.RMSprop(0.01, momentum=0.9, centered=True),
    "clipnorm": lambda: keras.optimizers.Adam(0.01, clipnorm=0.1),
    "clipvalue": lambda: keras.optimizers.SGD(0.1, clipvalue=0.5),
    "global_clipnorm": lambda: keras.optimizers.SGD(0.5, global_clipnorm=0.1),
    "scaled_clipnorm": lambda: keras.optimizers.SGD(0.5, clipnorm=0.1, loss_scale_factor=8.0),
    "decay": lambda: keras.optimizers.SGD(0.1, weight_decay=0.05),
    "decay_exclusions": _excluding,
    "average": lambda: keras.optimizers.Adam(
        0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=5
    ),
    "accumulation": lambda: keras.optimizers.Adam(0.02, gradient_accumulation_steps=3),
    "accumulation_clipnorm": lambda: keras.optimizers.SGD(
        0.5, gradient_accumulation_steps=3, clipnorm=0.1
    ),
    "schedule": lambda: keras.optimizers.Adam(
        keras.optimizers.schedules.ExponentialDecay(0.02, 5, 0.9)
    ),
    "loss_scale": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adam(0.01), initial_scale=4.0, dynamic_growth_steps=5
    ),
    "multi": _multi,
    "loss_scale_multi": lambda: keras.optimizers.LossScaleOptimizer(
        _multi(), initial_scale=4.0, dynamic_growth_steps=5
    ),
    "own_class": lambda: ElementwiseSGD(0.1, momentum=0.9),
}


def _of_class(name: str) -> Callable[[], Any]:
    return lambda: OPTIMIZERS[name](learning_rate=RATES.get(name, 0.01))


CASES = VARIANTS | {name: _of_class(name) for name in sorted(set(OPTIMIZERS) - WRAPPERS)}
# How many vectors the five variables make.
SLABS = {
    "decay_exclusions": 2,
    "multi": 2,
    "loss_scale_multi": 2,
    "accumulation_clipnorm": 0,
} | dict.fromkeys(OF_WHOLE_VARIABLES, 0)
# What one kernel can do or leave.
MASKABLE = sorted(
    {optimizer.__name__ for optimizer in ELEMENTWISE}
    | {"momentum", "amsgrad", "centered", "clipnorm", "clipvalue", "global_clipnorm", "decay"}
    | {"scaled_clipnorm", "decay_exclusions", "schedule"}
)


def _values() -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {n: random.normal(size=s).astype("float32") for n, s in SHAPES.items()}


def _gradients(step: int) -> list[np.ndarray]:
    random = np.random.default_rng(100 + step)
    return [random.normal(size=shape).astype("float32") for shape in SHAPES.values()]


def test_every_class_of_keras_is_known() -> None:
    """A new class of Keras must be put on one side or the other."""
    assert set(OPTIMIZERS) == {c.__name__ for c in ELEMENTWISE} | OF_WHOLE_VARIABLES | WRAPPERS


def test_a_class_of_ones_own_must_say_so_itself() -> None:
    assert is_elementwise(ElementwiseSGD(0.1))
    assert not is_elementwise(UndeclaredSGD(0.1))


# Of one variable after the other, and with a norm of all of them.
@pytest.mark.quick("amsgrad", "global_clipnorm")
@pytest.mark.parametrize("name", MASKABLE)
def test_a_masked_update_is_done_or_leaves_every_bit(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_update, "MIN_COMPILED_ITEMS", 0)
    found: list[list[np.ndarray]] = []
    for masked in (False, True):
        server = LocalServer()
        served = [server.variable(value, name=n) for n, value in _values().items()]
        optimizer = CASES[name]()
        optimizer.build(served)
        server.lay_out((optimizer, served))
        push = server.push(optimizer, served, masked=masked)
        for step in range(STEPS):
            push(_gradients(step))
            if masked:
                before = [v.numpy().tobytes() for v in (*served, *optimizer.variables)]
                push(_gradients(STEPS + step), counts=False)
                after = [v.numpy().tobytes() for v in (*served, *optimizer.variables)]
                assert after == before
        found.append([v.numpy() for v in (*served, *optimizer.variables)])
    for conditional, value in zip(*found, strict=True):
        np.testing.assert_allclose(value, conditional, rtol=0, atol=TOLERANCE)


@pytest.mark.quick("SGD", "Adam", "momentum", "global_clipnorm")
@pytest.mark.parametrize("name", CASES)
def test_what_can_be_masked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update can be masked if XLA compiles all of it, up to a size."""
    server = LocalServer()
    served = [server.variable(value, name=n) for n, value in _values().items()]
    optimizer = CASES[name]()
    optimizer.build(served)
    server.lay_out((optimizer, served))
    update = server.push(optimizer, served).update
    natives = group_by_slab(served).natives
    names, items = [n.shared_name for n in natives], sum(n.shape.num_elements() for n in natives)

    def is_maskable(compiled_items: int, masked_items: int) -> bool:
        monkeypatch.setattr(server_update, "MIN_COMPILED_ITEMS", compiled_items)
        monkeypatch.setattr(server_update, "MAX_MASKED_ITEMS", masked_items)
        return bool(update.is_maskable(names, device=DEVICE))

    assert is_maskable(items, items) == (name in MASKABLE)
    assert not is_maskable(items + 1, items + 1)
    assert not is_maskable(0, items - 1)


def test_a_masked_update_may_only_assign() -> None:
    variable = LocalServer().variable(np.zeros([3], "float32"), name="kernel").value

    def scatter(counts: tf.Tensor) -> list[tf.Tensor]:
        with mask_assignments(counts):
            variable.scatter_nd_add([[0]], [1.0])
        return [counts]

    with raises(RuntimeError, "received an update with", received=["ResourceScatterNdAdd"]):
        trace_server_function(scatter, device=DEVICE, signature=[tf.TensorSpec([], tf.bool)])


@pytest.mark.quick("clipnorm", "loss_scale_multi")
@pytest.mark.parametrize("name", CASES)
def test_same_numbers_as_keras(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_update, "MIN_COMPILED_ITEMS", 0)
    local = {n: keras.Variable(value, name=n) for n, value in _values().items()}
    expected = CASES[name]()
    expected.build(list(local.values()))
    server = LocalServer()
    served = {n: server.variable(value, name=n) for n, value in _values().items()}
    found = CASES[name]()
    found.build(list(served.values()))
    order = [v.path for v in found.variables]
    laid_out = server.lay_out((found, list(served.values())))
    assert len(laid_out) == SLABS.get(name, 1)
    push = server.push(found, list(served.values()))
    values: list[np.ndarray] = []
    for step in range(STEPS):
        expected.apply([g.copy() for g in _gradients(step)], list(local.values()))
        values = push(_gradients(step))
    for value, reference, start in zip(values, local.values(), _values().values(), strict=True):
        np.testing.assert_allclose(value, reference.numpy(), rtol=0, atol=TOLERANCE)
        assert np.abs(value - start).max() > 1e-3
    for variable, value in zip(served.values(), values, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    assert [v.path for v in found.variables] == order
    for variable, reference in zip(found.variables, expected.variables, strict=True):
        assert variable.shape == reference.shape
        np.testing.assert_allclose(
            variable.numpy(), reference.numpy(), rtol=1e-5, atol=1e-5, err_msg=variable.path
        )


def test_a_scale_around_several_optimizers_skips_all_of_them() -> None:
    """If the gradient of one variable is not finite, no optimizer counts the step, as in Keras."""
    server = LocalServer()
    served = [server.variable(value, name=n) for n, value in _values().items()]
    optimizer = CASES["loss_scale_multi"]()
    optimizer.build(served)
    server.lay_out((optimizer, served))
    push = server.push(optimizer, served)
    push(_gradients(0))
    before = {v.path: v.numpy() for v in (*served, *optimizer.variables)}
    gradients = _gradients(1)
    gradients[0][0] = np.inf
    push(gradients)
    changed = {
        v.path for v in (*served, *optimizer.variables) if (v.numpy() != before[v.path]).any()
    }
    assert changed == {optimizer.step_counter.path, optimizer.dynamic_scale.path}
    assert float(optimizer.dynamic_scale) == 2.0


@pytest.mark.parametrize("name", sorted(OF_WHOLE_VARIABLES))
def test_the_others_are_not_elementwise(name: str) -> None:
    """One vector would give other numbers: the list holds no more than it must."""
    names = ("kernel", "head_kernel")
    apart = [keras.Variable(_values()[n]) for n in names]
    flat = np.concatenate([_values()[n].ravel() for n in names])
    together = keras.Variable(flat[:, None] if name == "Muon" else flat)
    one, other = _of_class(name)(), _of_class(name)()
    for step in range(3):
        gradients = [g for n, g in zip(SHAPES, _gradients(step), strict=True) if n in names]
        one.apply(gradients, apart)
        joined = np.concatenate([g.ravel() for g in gradients])
        other.apply([joined.reshape(together.shape)], [together])
    difference = np.concatenate([v.numpy().ravel() for v in apart]) - together.numpy().ravel()
    assert np.abs(difference).max() > 1e-3


@pytest.mark.quick("accumulation_clipnorm")
@pytest.mark.parametrize("name", ["Lamb", "Muon", "Adafactor", "accumulation_clipnorm"])
def test_an_optimizer_of_whole_variables_on_slabs_of_another(name: str) -> None:
    """After a recompile the variables still lie together; each is updated by itself."""
    served, local = [], []
    server = LocalServer()
    for n, value in _values().items():
        served.append(server.variable(value, name=n))
        local.append(keras.Variable(value, name=n))
    first = keras.optimizers.SGD()
    first.build(served)
    assert len(server.lay_out((first, served))) == 1
    found, expected = CASES[name](), CASES[name]()
    found.build(served)
    expected.build(local)
    push = server.push(found, served)
    for step in range(STEPS):
        push(_gradients(step))
        expected.apply(_gradients(step), local)
    pairs = zip([*served, *found.variables], [*local, *expected.variables], strict=True)
    for variable, reference in pairs:
        np.testing.assert_allclose(
            variable.numpy(), reference.numpy(), rtol=1e-5, atol=TOLERANCE, err_msg=variable.path
        )


def test_a_call_for_a_part_of_a_slab_leaves_the_rest_alone() -> None:
    """Adam's momentum would move a variable that has no gradient in this call."""
    server = LocalServer()
    served = {n: server.variable(value, name=n) for n, value in _values().items()}
    local = {n: keras.Variable(value, name=n) for n, value in _values().items()}
    found, expected = keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.01)
    found.build(list(served.values()))
    expected.build(list(local.values()))
    server.lay_out((found, list(served.values())))
    part = ["kernel", "scale"]
    push, push_part = (
        server.push(found, list(served.values())),
        server.push(found, [served[n] for n in part]),
    )
    for step in range(4):
        gradients = dict(zip(SHAPES, _gradients(step), strict=True))
        push(list(gradients.values()))
        expected.apply(list(gradients.values()), list(local.values()))
        push_part([gradients[n] for n in part])
        expected.apply([gradients[n] for n in part], [local[n] for n in part])
    for name, variable in served.items():
        np.testing.assert_allclose(
            variable.numpy(), local[name].numpy(), rtol=0, atol=TOLERANCE, err_msg=name
        )
    for variable, reference in zip(found.variables, expected.variables, strict=True):
        np.testing.assert_allclose(variable.numpy(), reference.numpy(), rtol=1e-5, atol=1e-6)
