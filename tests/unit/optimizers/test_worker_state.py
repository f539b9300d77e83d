"""Optimizers with momenta of workers: `DANA` against the paper, and what all have in common."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.messages import raises
from tests.unit.optimizers.server import gradients_of, initial_values, served
from tfps.errors import ConfigError
from tfps.optimizers import DANA, AsyncAdam, StalenessAware

RATE, MOMENTUM = 0.1, 0.9
ORDER = [0, 0, 1, 0, 2, 1, 1, 0]  # the first push of worker 2 lacks four


def looked_ahead(weight: np.ndarray, position: int) -> np.ndarray:
    """DANA-Zero: the master's own parameters, and what it would send after the last push."""
    momenta = {worker: np.zeros_like(weight) for worker in ORDER}
    for step, worker in enumerate(ORDER):
        gradient = gradients_of(step)[position].astype("float64")
        momenta[worker] = MOMENTUM * momenta[worker] + gradient
        weight = weight - RATE * momenta[worker]
    ahead: np.ndarray = weight - RATE * MOMENTUM * sum(momenta.values())
    return ahead


def dana() -> DANA:
    return DANA(RATE, MOMENTUM)


# All of them; in one process DANA stands for those that keep a momentum of each worker.
KINDS: dict[str, Callable[[], Any]] = {
    "dana": dana,
    "adam": lambda: AsyncAdam(RATE),
    "ordered": lambda: AsyncAdam(RATE, "ordered"),
}


def plain() -> keras.optimizers.SGD:
    """The optimizer that DANA equals with one worker."""
    return keras.optimizers.SGD(RATE, momentum=MOMENTUM, nesterov=True)


@pytest.mark.parametrize("in_slabs", [False, True], ids=["apart", "slab"])
def test_a_known_order_of_pushes(in_slabs: bool) -> None:
    server, optimizer, variables = served(dana, in_slabs=in_slabs)
    push = server.push(optimizer, variables, workers=3)
    for step, worker in enumerate(ORDER):
        push(gradients_of(step), worker)
    for position, (variable, value) in enumerate(zip(variables, initial_values(), strict=True)):
        expected = looked_ahead(value.astype("float64"), position)
        np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.rare
@pytest.mark.quick("dana")
@pytest.mark.parametrize("kind", KINDS)
def test_a_push_of_a_part_of_a_slab(kind: str) -> None:
    """The numbers are those of variables that lie apart."""
    results = []
    for in_slabs in (False, True):
        server, optimizer, variables = served(KINDS[kind], in_slabs=in_slabs)
        push = server.push(optimizer, variables, workers=3)
        part = server.push(optimizer, variables[1:2], workers=3, update=push.update)
        for step, worker in enumerate(ORDER):
            push(gradients_of(step), worker)
            part(gradients_of(step)[1:2], (worker + 1) % 3)
        results.append([variable.numpy() for variable in variables])
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-6)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "weight decay": {"weight_decay": 0.1},
    "clipped": {"clipnorm": 0.5},
    "clipped together": {"global_clipnorm": 0.5},
    "scaled": {"loss_scale_factor": 4.0},
    "accumulated": {"gradient_accumulation_steps": 2},
    "averaged": {"use_ema": True, "ema_momentum": 0.5},
}
AROUND: dict[str, Callable[[Any], Any]] = {
    "alone": lambda optimizer: optimizer,
    "wrapped": StalenessAware,
    "loss scale": lambda optimizer: keras.optimizers.LossScaleOptimizer(
        optimizer, initial_scale=8.0
    ),
}


def _around(wrap: Callable[[Any], Any], kind: type, config: dict[str, Any]) -> Any:
    return wrap(kind(**config))


@pytest.mark.quick("scaled-alone", "plain-*")
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("options", OPTIONS)
def test_of_one_worker_it_is_the_optimizer_of_keras(options: str, around: str) -> None:
    """To the bit, also away from servers."""
    if around == "loss scale" and options == "scaled":
        return  # two scales at once
    results = []
    for kind in (plain, dana):
        made = kind()
        config = {**made.get_config(), **OPTIONS[options]}

        around_it = AROUND["alone" if kind is plain and around == "wrapped" else around]
        make = functools.partial(_around, around_it, type(made), config)

        server, optimizer, variables = served(make, in_slabs=False)
        server.lay_out((optimizer, variables))
        push = server.push(optimizer, variables, workers=1)
        local, local_optimizer = [keras.Variable(value) for value in initial_values()], make()
        for step in range(3):
            push(gradients_of(step))
            if around != "loss scale":
                local_optimizer.apply(
                    [keras.ops.convert_to_tensor(g) for g in gradients_of(step)], local
                )
        results.append([v.numpy() for v in (*variables, *local)])
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(two, one)


@pytest.mark.quick("*-plain", "adam-weight*")
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", ["adam", "ordered"])
def test_one_worker_trains_as_one_machine(kind: str, options: str) -> None:
    """Not a bit differs, but where a norm adds up variables that lie in a slab."""
    config = {**KINDS[kind]().get_config(), **OPTIONS[options]}
    server, optimizer, variables = served(lambda: AsyncAdam(**config), in_slabs=False)
    server.lay_out((optimizer, variables))
    push = server.push(optimizer, variables, workers=1)
    local, local_optimizer = list(map(keras.Variable, initial_values())), AsyncAdam(**config)
    for step in range(4):
        push(gradients_of(step))
        local_optimizer.apply([keras.ops.convert_to_tensor(g) for g in gradients_of(step)], local)
    for one, two in zip(variables, local, strict=True):
        tolerance = 1e-6 * (options == "clipped together")
        np.testing.assert_allclose(one.numpy(), two.numpy(), rtol=tolerance)


def test_a_momentum_of_each_worker_and_the_first_is_the_slot() -> None:
    server, optimizer, variables = served(dana, in_slabs=False)
    push = server.push(optimizer, variables, workers=2)
    push(gradients_of(0), 1)
    assert all(not slot.numpy().any() for slot in optimizer.momentums)
    push(gradients_of(1), 0)
    for slot, gradient in zip(optimizer.momentums, gradients_of(1), strict=True):
        np.testing.assert_allclose(slot.numpy(), -RATE * gradient, rtol=1e-6)


@pytest.mark.repeats
@pytest.mark.quick("dana-*")
@pytest.mark.parametrize("in_slabs", [False, True], ids=["apart", "slab"])
@pytest.mark.parametrize("kind", KINDS)
def test_who_is_forgotten_begins_anew(kind: str, in_slabs: bool) -> None:
    """A lost server brings this about: the checkpoint that fills it has no such momenta."""
    server, optimizer, variables = served(KINDS[kind], in_slabs=in_slabs)
    state = [variable.numpy() for variable in (*variables, *optimizer.variables)]
    push = server.push(optimizer, variables, workers=3)
    results = []
    for _ in range(2):
        for worker in range(3):
            push.begin(worker)
        results.append([push(gradients_of(step), worker) for step, worker in enumerate(ORDER)][-1])
        for variable, value in zip((*variables, *optimizer.variables), state, strict=True):
            variable.assign(value)
        push.update.reset_worker_states()
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_saved_with_the_model(kind: str, tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    optimizer = KINDS[kind]()
    model.compile(optimizer, "mse")
    optimizer.build(model.trainable_variables)
    for i, variable in enumerate(optimizer.variables):
        variable.assign(np.full(variable.shape, i))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras").optimizer
    assert type(loaded) is type(optimizer)
    assert loaded.get_config() == optimizer.get_config()
    for one, two in zip(optimizer.variables, loaded.variables, strict=True):
        np.testing.assert_array_equal(two.numpy(), one.numpy())


@pytest.mark.parametrize("momentum", [0, 1.0])
def test_what_is_refused(momentum: float) -> None:
    with raises(ConfigError, "momentum: ", received=momentum, remedy="keras.optimizers.SGD"):
        DANA(momentum=momentum)


@pytest.mark.parametrize("kind", KINDS)
def test_momenta_of_workers_need_gradients_of_workers(kind: str) -> None:
    server, optimizer, variables = served(lambda: StalenessAware(KINDS[kind]()), in_slabs=False)
    name = type(optimizer.inner_optimizer).__name__
    with raises(ConfigError, "consistency", received=name, remedy="tfps.Asynchronous()"):
        server.push(optimizer, variables, workers=0)
