"""`AsyncAdam`: pushes in a known order against its formulas in NumPy, item by item."""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.messages import check_message
from tests.unit.optimizers.scaled_momenta import ARGUMENTS, FORMULAS
from tests.unit.optimizers.server import gradients_of, initial_values, served
from tfps.errors import ConfigError
from tfps.optimizers import AsyncAdam

# The worker of each push, and how many workers take part: worker 2 is lost, and comes back.
PUSHES = [(0, 3), (0, 3), (2, 3), (1, 3), (1, 3), (0, 2), (0, 2), (1, 2), (1, 2), (2, 3), (0, 3)]
COMES_BACK = 9


@pytest.mark.parametrize("stored", ["apart", "slab", "compiled"])
@pytest.mark.parametrize("momentum", FORMULAS)
def test_a_known_order_of_pushes(
    momentum: str, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stored == "compiled":
        monkeypatch.setattr("tfps.optimizers.server_update.MIN_COMPILED_ITEMS", 0)

    def make() -> AsyncAdam:
        return AsyncAdam(momentum=momentum, **ARGUMENTS)

    server, optimizer, variables = served(make, in_slabs=stored != "apart")
    push = server.push(optimizer, variables, workers=3)
    expected = [FORMULAS[momentum](value.astype("float64"), 3) for value in initial_values()]
    for each in expected:
        each.read_at = dict.fromkeys(range(3), 0)
    for step, (worker, present) in enumerate(PUSHES):
        if step == COMES_BACK:
            push.begin(worker)
        push(gradients_of(step), worker, present=present)
        for each, gradient in zip(expected, gradients_of(step), strict=True):
            if step == COMES_BACK:
                each.pull(worker)
            each.present = present
            each.push(worker, gradient.astype("float64"), base=each.read_at[worker])
            each.pull(worker)
    for variable, each in zip(variables, expected, strict=True):
        np.testing.assert_allclose(variable.numpy(), each.weight, rtol=1e-4, atol=1e-5)


def test_ordered_momentum_keeps_nothing_of_workers() -> None:
    held = {}
    for momentum in FORMULAS:
        make = functools.partial(AsyncAdam, momentum=momentum)
        server, optimizer, variables = served(make, in_slabs=False)
        held[momentum] = server.push(optimizer, variables, workers=3).update.depends_on_sender
    assert held == {"per_worker": True, "ordered": False}


def test_rows_on_one_machine_are_added_up() -> None:
    """The gradient has a row twice."""
    rows = tf.IndexedSlices(tf.ones([3, 2]), tf.constant([1, 1, 0]), tf.constant([3, 2]))
    found = []
    for gradient in (rows, tf.constant([[1.0, 1.0], [2.0, 2.0], [0.0, 0.0]])):
        table, optimizer = keras.Variable(np.ones((3, 2), "float32")), AsyncAdam(0.1)
        for _ in range(2):
            optimizer.apply([gradient], [table])
        found.append(table.numpy())
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        ({"momentum": 0.9}, "'per_worker' or 'ordered'"),
        ({"beta_1": 1.0}, "from 0, below 1"),
        ({"beta_2": -0.1}, "from 0, below 1"),
        ({"epsilon": 0}, "above 0"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ConfigError) as raised:
        AsyncAdam(**arguments)
    ((name, value),) = arguments.items()
    (problem,) = raised.value.problems
    check_message(problem, f"{name}: ", received=str(value), remedy=remedy)
