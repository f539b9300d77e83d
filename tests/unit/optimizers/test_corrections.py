"""`GapAware` and a correction of a user's own: pushes in a known order against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.messages import raises
from tests.unit.optimizers.compensated import Compensated
from tests.unit.optimizers.server import gradients_of, initial_values, served
from tfps.errors import ConfigError
from tfps.optimizers import GapAware, StalenessAware

RATE = 0.1
# Worker by worker; the third push of worker 0 lacks one update, the first of worker 1 lacks two.
ORDER = [0, 0, 1, 0, 1, 1, 0]


def compensated() -> Callable[..., np.ndarray]:
    """SGD after `Compensated` for one variable."""

    def step(weight: np.ndarray, gradient: np.ndarray, sent: np.ndarray, _: int) -> np.ndarray:
        return weight - RATE * (gradient + 0.5 * gradient**2 * (weight - sent))

    return step


def gap_aware() -> Callable[..., np.ndarray]:
    """SGD with the parameter-wise gap for one variable."""
    square = np.zeros(())

    def step(
        weight: np.ndarray, gradient: np.ndarray, sent: np.ndarray, updates: int
    ) -> np.ndarray:
        nonlocal square
        typical = np.sqrt(square / (1 - 0.999**updates)) if updates else np.zeros(())
        new = weight - RATE * gradient / (np.abs(weight - sent) / (typical + 1e-8) + 1)
        square = 0.999 * square + 0.001 * (new - weight) ** 2
        return new

    return step


CASES: dict[str, tuple[Callable[[Any], Any], Callable[[], Callable[..., np.ndarray]]]] = {
    "own": (Compensated, compensated),
    "gap": (GapAware, gap_aware),
}


def _expected(make: Callable[[], Callable[..., np.ndarray]], order: Sequence[int]) -> list[Any]:
    """Return the variables after the steps of the paper's algorithm."""
    results = []
    for i, weight in enumerate(v.astype("float64") for v in initial_values()):
        step, sent = make(), dict.fromkeys(order, weight)
        for number, worker in enumerate(order):
            gradient = gradients_of(number)[i].astype("float64")
            weight = step(weight, gradient, sent[worker], number)
            sent[worker] = weight
        results.append(weight)
    return results


@pytest.mark.parametrize("in_slabs", [False, True], ids=["apart", "slab"])
@pytest.mark.parametrize("name", CASES)
def test_a_known_order_of_pushes(name: str, in_slabs: bool) -> None:
    wrap, model = CASES[name]
    server, optimizer, variables = served(
        lambda: wrap(keras.optimizers.SGD(RATE)), in_slabs=in_slabs
    )
    push = server.push(optimizer, variables, workers=2)
    for step, worker in enumerate(ORDER):
        push(gradients_of(step), worker)
    plain = [
        v - RATE * sum(gradients_of(s)[i] for s in range(7)) for i, v in enumerate(initial_values())
    ]
    for variable, expected, other in zip(variables, _expected(model, ORDER), plain, strict=True):
        np.testing.assert_allclose(variable.numpy(), expected, rtol=2e-4, atol=1e-5)
        assert np.abs(expected - other).max() > 1e-3  # the correction has done something


def test_who_enters_holds_nothing_old() -> None:
    server, optimizer, variables = served(
        lambda: Compensated(keras.optimizers.SGD(RATE)), in_slabs=True
    )
    push = server.push(optimizer, variables, workers=2)
    push(gradients_of(0), 0)
    push.begin(1)
    push(gradients_of(1), 1)
    for i, (variable, value) in enumerate(zip(variables, initial_values(), strict=True)):
        expected = (
            value - np.float32(RATE) * gradients_of(0)[i] - np.float32(RATE) * gradients_of(1)[i]
        )
        np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-6)


def _several() -> Any:
    sgd, adam = keras.optimizers.SGD(RATE), keras.optimizers.Adam(0.01)
    return keras.optimizers.MultiOptimizer(lambda v: adam if "kernel" in v.name else sgd)


INNER: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(RATE, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.01, weight_decay=0.1),
    "clipped": lambda: keras.optimizers.SGD(RATE, clipnorm=0.5),
    "clipped together": lambda: keras.optimizers.SGD(RATE, global_clipnorm=0.5),
    "clipped by value": lambda: keras.optimizers.SGD(RATE, clipvalue=0.2),
    "scaled": lambda: keras.optimizers.SGD(RATE, loss_scale_factor=4.0),
    "accumulated": lambda: keras.optimizers.SGD(RATE, gradient_accumulation_steps=2),
    "loss scale": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(RATE), initial_scale=8.0
    ),
    "lamb": lambda: keras.optimizers.Lamb(0.01),
    "several": _several,
}
WRAPPED: dict[str, Callable[[Any], Any]] = {
    **{name: wrap for name, (wrap, _) in CASES.items()},
    "both, discounted": lambda inner: StalenessAware(Compensated(GapAware(inner))),
    "discounted inside": lambda inner: GapAware(StalenessAware(inner)),
}


# Each wrapper, and each inner optimizer.
@pytest.mark.quick("*-adam", "own-*")
@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("wrapper", WRAPPED)
def test_where_nothing_is_stale_it_is_the_inner_optimizer(wrapper: str, inner: str) -> None:
    """To the bit, when one worker's gradients come from what it was answered with last.

    Only the factor of a global norm is multiplied in another order by TensorFlow.
    """
    tolerance = 2e-7 if inner == "clipped together" else 0
    results = []
    for make in (INNER[inner], lambda: WRAPPED[wrapper](INNER[inner]())):
        server, optimizer, variables = served(make, in_slabs=False)
        server.lay_out((optimizer, variables))
        push = server.push(optimizer, variables, workers=1)
        for step in range(4):
            push(gradients_of(step))
        results.append([variable.numpy() for variable in variables])
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(two, one, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_on_one_machine_it_is_the_inner_optimizer(name: str) -> None:
    results = []
    for wrap in (lambda inner: inner, CASES[name][0]):
        variables = [keras.Variable(value) for value in initial_values()]
        optimizer = wrap(keras.optimizers.Adam(0.01))
        for step in range(3):
            optimizer.apply(gradients_of(step), variables)
        results.append([variable.numpy() for variable in variables])
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(two, one)


def test_the_discount_acts_on_what_is_corrected() -> None:
    server, optimizer, variables = served(
        lambda: StalenessAware(Compensated(keras.optimizers.SGD(RATE))), in_slabs=True
    )
    push = server.push(optimizer, variables, workers=2)
    expected = [value.astype("float64") for value in initial_values()]
    start = expected
    for step, (worker, factor) in enumerate([(0, 1), (0, 1), (1, np.exp(-0.2))]):
        push(gradients_of(step), worker)
        moved = [(w - s) * (worker == 1) for w, s in zip(expected, start, strict=True)]
        expected = [
            w - factor * RATE * (g + 0.5 * g.astype("float64") ** 2 * m)
            for w, g, m in zip(expected, gradients_of(step), moved, strict=True)
        ]
    for variable, value in zip(variables, expected, strict=True):
        np.testing.assert_allclose(variable.numpy(), value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("inner", ["scaled", "loss scale"])
def test_scaled_losses_are_compensated_as_if_they_were_not(inner: str) -> None:
    scale = {"scaled": 4.0, "loss scale": 8.0}[inner]
    server, optimizer, variables = served(lambda: Compensated(INNER[inner]()), in_slabs=True)
    push = server.push(optimizer, variables, workers=2)
    for step, worker in enumerate(ORDER):
        push([gradient * np.float32(scale) for gradient in gradients_of(step)], worker)
    expected = _expected(compensated, ORDER)
    for variable, value in zip(variables, expected, strict=True):
        np.testing.assert_allclose(variable.numpy(), value, rtol=1e-4, atol=1e-5)


def test_a_part_of_a_slab_knows_its_part_of_what_was_handed() -> None:
    server, optimizer, variables = served(
        lambda: Compensated(keras.optimizers.SGD(RATE)), in_slabs=True
    )
    push = server.push(optimizer, variables, workers=2)
    part = server.push(optimizer, variables[1:2], workers=2, update=push.update)
    push(gradients_of(0), 0)
    part(gradients_of(1)[1:2], 1)  # lacks one update
    first, second = (gradients_of(step)[1].astype("float64") for step in range(2))
    moved = -RATE * first
    expected = initial_values()[1] + moved - RATE * (second + 0.5 * second**2 * moved)
    np.testing.assert_allclose(variables[1].numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_it_is_saved_with_the_model(name: str, tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    optimizer = CASES[name][0](keras.optimizers.Adam(0.02))
    model.compile(optimizer, "mse")
    optimizer.build(model.trainable_variables)
    for i, variable in enumerate(optimizer.variables):
        variable.assign(np.full(variable.shape, i))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras").optimizer
    assert type(loaded) is type(optimizer)
    assert isinstance(loaded.inner_optimizer, keras.optimizers.Adam)
    assert loaded.get_config() == optimizer.get_config()
    for one, two in zip(optimizer.variables, loaded.variables, strict=True):
        np.testing.assert_array_equal(two.numpy(), one.numpy())


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("optimizer", "adam", "keras.optimizers.Adam"),
        ("momentum", 1.0, "from 0, below 1"),
        ("epsilon", 0, "above 0"),
        ("epsilon", "a lot", "above 0"),
        ("momentum", -0.1, "from 0, below 1"),
        ("epsilon", None, "above 0"),
    ],
)
def test_what_is_refused(key: str, value: Any, expected: str) -> None:
    with raises(ConfigError, f"{key}: ", received=repr(value), remedy=expected):
        GapAware(**{"optimizer": keras.optimizers.SGD(0.1), key: value})
