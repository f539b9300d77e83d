"""`StalenessAware` away from servers: the inner optimizer, its rules, and what is refused."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.messages import raises
from tfps.errors import ConfigError
from tfps.optimizers import StalenessAware
from tfps.optimizers.discount import Exponential, resolve_discount

CLASSES = sorted(
    name
    for name, value in vars(keras.optimizers).items()
    if inspect.isclass(value)
    and issubclass(value, keras.optimizers.Optimizer)
    and value not in (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer)
    and name != "MultiOptimizer"
)


def trained(optimizer: Any) -> list[np.ndarray]:
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(3, kernel_constraint=keras.constraints.MaxNorm(0.5)),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer, "mse")
    x = np.random.default_rng(0).normal(size=(24, 4)).astype("float32")
    model.fit(x, x[:, :1], batch_size=6, shuffle=False, verbose=0)
    assert int(model.optimizer.iterations) == 4
    return [*model.get_weights(), np.asarray(model.optimizer.learning_rate)]


@pytest.mark.rare
@pytest.mark.quick("Adam")
@pytest.mark.parametrize("name", CLASSES)
def test_on_one_machine_it_is_the_inner_optimizer(name: str) -> None:
    make = getattr(keras.optimizers, name)
    for one, two in zip(trained(make(0.05)), trained(StalenessAware(make(0.05))), strict=True):
        np.testing.assert_array_equal(two, one)


@pytest.mark.parametrize("name", CLASSES)
def test_all_state_of_the_inner_optimizer_is_saved(name: str) -> None:
    """Nadam's product of momenta was not."""
    plain, inner = (getattr(keras.optimizers, name)() for _ in range(2))
    plain.build([keras.Variable(np.ones((2, 3)))])
    StalenessAware(inner).build([keras.Variable(np.ones((2, 3)))])
    assert len(inner.variables) == len(plain.variables)


def test_it_is_saved_with_the_model(tmp_path: Path) -> None:
    optimizer = StalenessAware(
        keras.optimizers.Adam(0.02), discount=Exponential(0.3), drop_above=5, name="aware"
    )
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras").optimizer
    assert (loaded.discount, loaded.drop_above, loaded.name) == (Exponential(0.3), 5, "aware")
    assert isinstance(loaded.inner_optimizer, keras.optimizers.Adam)
    assert int(loaded.iterations) == 1
    for one, two in zip(optimizer.variables, loaded.variables, strict=True):
        np.testing.assert_array_equal(two.numpy(), one.numpy())


def test_learning_rate_is_the_inner_one() -> None:
    optimizer = StalenessAware(keras.optimizers.SGD(0.5))
    assert float(optimizer.learning_rate) == 0.5
    optimizer.learning_rate = 0.25
    assert float(optimizer.inner_optimizer.learning_rate) == 0.25


@pytest.mark.parametrize(
    ("rule", "factors"),
    [
        ("none", [1, 1, 1, 1]),
        ("exponential", [1, np.exp(-0.1), np.exp(-0.2), np.exp(-0.5)]),
        (lambda staleness: 0.5**staleness, [1, 0.5, 0.25, 0.03125]),
    ],
)
def test_rules(rule: Any, factors: list[float]) -> None:
    discount = resolve_discount(rule)
    staleness = keras.ops.convert_to_tensor([0.0, 1.0, 2.0, 5.0])
    np.testing.assert_allclose(keras.ops.convert_to_numpy(discount(staleness)), factors, rtol=1e-6)


def test_rules_print_readably() -> None:
    assert repr(Exponential(0.2)) == "Exponential(rate=0.2)"
    assert [repr(resolve_discount(name)) for name in ("none", "exponential")] == [
        "Undiscounted()",
        "Exponential(rate=0.1)",
    ]


def test_a_step_is_discounted_where_nothing_is_said() -> None:
    assert StalenessAware(keras.optimizers.SGD(0.1)).discount == Exponential(0.1)


@pytest.mark.parametrize(
    ("key", "value", "received", "expected"),
    [
        ("optimizer", "adam", "'adam'", "keras.optimizers.Adam"),
        ("discount", "linear", "'linear'", "'none', 'exponential'"),
        ("discount", 0.5, "0.5", "'none', 'exponential'"),
        ("discount", lambda staleness: 0.5 + staleness, "0.5 for a staleness of 0", "expected 1"),
        ("drop_above", -1, "-1", "whole number"),
        ("drop_above", 1.5, "1.5", "whole number"),
        ("drop_above", True, "True", "whole number"),
    ],
)
def test_what_is_refused(key: str, value: Any, received: str, expected: str) -> None:
    with raises(ConfigError, f"{key}: ", received=received, remedy=expected):
        StalenessAware(**{"optimizer": keras.optimizers.SGD(0.1), key: value})


def test_a_negative_rate_is_refused() -> None:
    with raises(ConfigError, "rate: ", received=-0.1, remedy="a number from 0"):
        Exponential(-0.1)
