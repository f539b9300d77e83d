"""The variables that share a slab: those always trained together and in the same way."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from tests.unit.optimizers.server import LocalServer


@pytest.fixture
def server() -> LocalServer:
    return LocalServer()


def _variables(server: LocalServer, *names: str, **options: Any) -> list[Any]:
    return [
        server.variable(np.full([3], i, "float32"), name=n, **options) for i, n in enumerate(names)
    ]


def _built(optimizer: Any, variables: list[Any]) -> Any:
    optimizer.build(variables)
    return optimizer


def _slabs(variables: list[Any]) -> list[tuple[str, ...]]:
    """The names of the variables that lie together, where they are in a slab."""
    slabs: dict[str, list[str]] = {}
    for variable in variables:
        slab = variable.value.slab
        slabs.setdefault("" if slab is None else slab.shared_name, []).append(variable.name)
    return sorted(tuple(names) for name, names in slabs.items() if name)


def test_values_names_and_order_stay(server: LocalServer) -> None:
    variables = _variables(server, "a", "b", "c")
    adam = _built(keras.optimizers.Adam(), variables)
    paths = [variable.path for variable in (*variables, *adam.variables)]
    keys = [variable.value._unique_id for variable in variables]
    assert server.lay_out((adam, variables)) == [("a", "b", "c")]
    assert [variable.path for variable in (*variables, *adam.variables)] == paths
    assert [variable.value._unique_id for variable in variables] == keys
    for i, variable in enumerate(variables):
        np.testing.assert_array_equal(variable.numpy(), np.full([3], i))


def test_a_second_time_nothing_is_left_to_do(server: LocalServer) -> None:
    variables = _variables(server, "a", "b")
    adam = _built(keras.optimizers.Adam(), variables)
    server.lay_out((adam, variables))
    assert server.lay_out((adam, variables)) == []
    assert server.lay_out((_built(keras.optimizers.SGD(), variables), variables[::-1])) == []


def test_frozen_variables_stay_apart(server: LocalServer) -> None:
    variables = _variables(server, "frozen", "a", "b")
    adam = _built(keras.optimizers.Adam(), variables)
    assert server.lay_out((adam, variables[1:])) == [("a", "b")]
    assert variables[0].value.slab is None


def test_a_slab_is_divided_when_a_part_of_it_is_trained(server: LocalServer) -> None:
    variables = _variables(server, "a", "b", "c")
    adam = _built(keras.optimizers.Adam(), variables)
    server.lay_out((adam, variables))
    assert server.lay_out((adam, variables[:2])) == [("a", "b"), ("c",)]
    assert server.lay_out((adam, variables)) == []  # and stays so: no later call undoes it
    assert _slabs(variables) == [("a", "b"), ("c",)]
    for i, variable in enumerate(variables):
        np.testing.assert_array_equal(variable.numpy(), np.full([3], i))


def test_two_calls_of_one_step(server: LocalServer) -> None:
    """Each optimizer has its own part, as in a GAN, and some variables are of both."""
    variables = _variables(server, "generator", "shared", "discriminator")
    first = _built(keras.optimizers.Adam(), variables[:2])
    second = _built(keras.optimizers.SGD(), variables[1:])
    server.lay_out((first, variables[:2]), (second, variables[1:]))
    assert _slabs(variables) == [("discriminator",), ("generator",), ("shared",)]


def test_constrained_and_overwritten_variables_stay_apart(server: LocalServer) -> None:
    variables = _variables(server, "a", "positive", "scale", "b")
    variables[1].constraint = keras.constraints.NonNeg()
    variables[2].overwrite_with_gradient = True
    adam = _built(keras.optimizers.Adam(), variables)
    assert server.lay_out((adam, variables)) == [("a", "b")]


def test_weight_decay_makes_two_slabs(server: LocalServer) -> None:
    variables = _variables(server, "kernel", "bias", "other_kernel")
    adam = keras.optimizers.AdamW(weight_decay=0.1)
    adam.exclude_from_weight_decay(var_names=["bias"])
    adam.build(variables)
    assert server.lay_out((adam, variables)) == [("kernel", "other_kernel"), ("bias",)]


def test_each_dtype_has_its_slab(server: LocalServer) -> None:
    variables = [
        server.variable(np.zeros([2], dtype), name=f"{dtype}_{i}", dtype=dtype)
        for i in range(2)
        for dtype in ("float32", "float16")
    ]
    sgd = _built(keras.optimizers.SGD(), variables)
    assert server.lay_out((sgd, variables)) == [
        ("float32_0", "float32_1"),
        ("float16_0", "float16_1"),
    ]


@pytest.mark.parametrize(
    "optimizer",
    [
        keras.optimizers.Lamb(),
        type("Own", (keras.optimizers.SGD,), {})(),
        # The norm of each accumulated gradient, which the server takes.
        keras.optimizers.SGD(clipnorm=1.0, gradient_accumulation_steps=2),
    ],
    ids=["lamb", "own class", "accumulated norm"],
)
def test_what_is_not_elementwise_has_no_slabs(server: LocalServer, optimizer: Any) -> None:
    variables = _variables(server, "a", "b")
    assert server.lay_out((_built(optimizer, variables), variables)) == []


def test_the_plan_shows_slabs_and_offsets(server: LocalServer) -> None:
    variables = [
        server.variable(np.zeros([3, 7], "float32"), name="kernel"),
        server.variable(np.zeros([7], "float32"), name="bias"),
    ]
    before = server.storage.plan
    server.lay_out((_built(keras.optimizers.SGD(), variables), variables))
    views = {view.variable: view for view in server.storage.plan.views}
    assert views["kernel"].slab == views["bias"].slab == variables[0].value.slab.shared_name
    assert (views["kernel"].offset_items, views["bias"].offset_items) == (0, 32)
    assert server.storage.plan.plan_id != before.plan_id
    assert server.storage.plan.bytes_per_server[0] >= before.bytes_per_server[0]


def test_nothing_is_left_behind(server: LocalServer) -> None:
    """The variables' own resources are freed, and the slab with the last of its variables."""
    variables = _variables(server, "a", "b")
    own = {variable.value.shared_name for variable in variables}
    server.lay_out((_built(keras.optimizers.SGD(), variables), variables))
    slab = variables[0].value.slab.shared_name

    def held() -> set[str]:
        return {resource.shared_name for resource in server.storage.contents[0].records}

    assert slab in held()
    assert not own & held()
    del variables[0]
    server.storage.collect()
    assert slab in held()
    variables.clear()
    server.storage.collect()
    assert slab not in held()
