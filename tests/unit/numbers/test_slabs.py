"""A model whose weights share vectors on the servers is used like any other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tfps.testing import InProcessCluster

LOCAL = "CPU:0"
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(96, 8)).astype("float32")
Y = RANDOM.integers(0, 3, size=96)
WIDE = 4096  # 8 * 4096 weights and more: the update is compiled
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

pytestmark = pytest.mark.timeout(180)


class EveryThird:
    """A server for two variables, the other for one: each has kernels and others."""

    def choose(self, variable: Any, *, bytes_per_server: Any, variables_placed: int) -> int:
        return int(variables_placed % 3 == 2)


@pytest.fixture(scope="module")
def strategy(cluster: Callable[..., InProcessCluster]) -> Iterator[tfps.ParameterServerStrategy]:
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2).cluster_resolver, placement=EveryThird()
    )
    yield strategy
    strategy.close()


def _model(width: int = 16) -> keras.Model:
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Dense(width, activation="tanh", name="hidden"),
            keras.layers.Dense(5, activation="tanh", name="middle"),
            keras.layers.Dense(3, name="head"),
        ],
        name="model",
    )
    model.compile(_excluding(), LOSS)
    return model


def _excluding() -> Any:
    optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias", "beta", "gamma"])
    return optimizer


def _fit(model: keras.Model) -> None:
    model.fit(X, Y, batch_size=16, epochs=1, shuffle=False, verbose=0)


Scope = Callable[[], contextlib.AbstractContextManager[Any]]


def _both(
    strategy: tfps.ParameterServerStrategy, life: Callable[[Scope], keras.Model]
) -> tuple[keras.Model, keras.Model]:
    """Run the same life of a model on the servers and on one machine, and compare."""
    with tf.device(LOCAL):
        local = life(contextlib.nullcontext)
    found = life(strategy.scope)
    for weight, reference in zip(found.weights, local.weights, strict=True):
        _assert_equal(weight, reference)
    for variable, reference in zip(
        found.optimizer.variables, local.optimizer.variables, strict=True
    ):
        _assert_equal(variable, reference)
    return found, local


def _assert_equal(variable: Any, reference: Any) -> None:
    assert variable.name == reference.name
    assert (variable.shape, variable.dtype) == (reference.shape, reference.dtype)
    np.testing.assert_allclose(
        variable.numpy(), reference.numpy(), rtol=1e-5, atol=2e-6, err_msg=variable.path
    )


def _assert_a_slab_for_each(model: keras.Model, kind: Callable[[Any], Any]) -> None:
    """Variables share a slab if and only if they are of one kind."""
    kinds: dict[Any, set[str]] = {}
    for variable in model.trainable_variables:
        kinds.setdefault(kind(variable), set()).add(variable.value.slab.shared_name)
    assert len(kinds) > 1
    assert all(len(slabs) == 1 for slabs in kinds.values())
    assert len(set.union(*kinds.values())) == len(kinds)


def _slabs(model: keras.Model) -> set[str]:
    return {
        v.value.slab.shared_name
        for v in model.trainable_variables
        if getattr(v.value, "slab", None) is not None
    }


@pytest.mark.slow
@pytest.mark.parametrize("width", [16, WIDE], ids=["keras", "compiled"])
def test_fit_with_weight_decay_exclusions(
    strategy: tfps.ParameterServerStrategy, width: int
) -> None:
    def life(scope: Scope) -> keras.Model:
        with scope():
            model = _model(width)
        _fit(model)
        return model

    found, _ = _both(strategy, life)
    assert all(v.value.slab is not None for v in found.trainable_variables)
    assert all(v.value.slab is None for v in found.non_trainable_variables)
    _assert_a_slab_for_each(found, lambda v: (v.value.device, v.name == "kernel"))
    compiled = [f for f in strategy.runtime.push_functions if _is_compiled(f)]
    assert bool(compiled) == (width == WIDE)
    # Also what is compiled is found, and lies on servers.
    written = {o.variable: o.device for o in strategy.update_operations()}
    assert _slabs(found) <= set(written)
    assert set(written.values()) <= set(strategy.runtime.topology.servers)


def _is_compiled(function: Any) -> bool:
    library = function.graph.as_graph_def().library.function
    return any(f.attr["_XlaMustCompile"].b for f in library)


@pytest.mark.repeats
def test_recompile_with_another_optimizer_keeps_values(
    strategy: tfps.ParameterServerStrategy,
) -> None:
    def life(scope: Scope) -> keras.Model:
        with scope():
            model = _model()
        _fit(model)
        variables = list(model.trainable_variables)
        for make in (
            lambda: keras.optimizers.SGD(0.05, momentum=0.9),
            lambda: keras.optimizers.Lamb(0.01),
            lambda: keras.optimizers.Adam(0.01, clipnorm=0.5),
        ):
            before = [weight.numpy() for weight in model.weights]
            with scope():
                model.compile(make(), LOSS)
            for weight, value in zip(model.weights, before, strict=True):
                np.testing.assert_array_equal(weight.numpy(), value)
            _fit(model)
        assert [id(v) for v in variables] == [id(v) for v in model.trainable_variables]
        return model

    _both(strategy, life)


@pytest.mark.repeats
def test_freezing_a_layer_divides_the_slabs(strategy: tfps.ParameterServerStrategy) -> None:
    sizes = []

    def life(scope: Scope) -> keras.Model:
        with scope():
            model = _model()
        _fit(model)
        for trainable in (False, True):
            model.get_layer("hidden").trainable = trainable
            with scope():
                model.compile(_excluding(), LOSS)
            frozen = model.get_layer("hidden").kernel.numpy()
            _fit(model)
            moved = np.abs(model.get_layer("hidden").kernel.numpy() - frozen).max()
            assert (moved > 0) == trainable
        sizes.append(len(_slabs(model)))
        return model

    _both(strategy, life)
    assert sizes[0] == 0 < sizes[1]


@pytest.mark.repeats
def test_evaluate_before_and_after_the_layout(strategy: tfps.ParameterServerStrategy) -> None:
    """Functions traced when each variable lay by itself are traced again."""
    losses: list[list[float]] = []

    def life(scope: Scope) -> keras.Model:
        with scope():
            model = _model()
        found = [model.evaluate(X, Y, verbose=0)]
        _fit(model)
        found.append(model.evaluate(X, Y, verbose=0))
        found.append(float(LOSS(Y, model.predict(X, verbose=0))))
        losses.append(found)
        return model

    _both(strategy, life)
    np.testing.assert_allclose(losses[1], losses[0], atol=1e-5)
    assert losses[1][0] != losses[1][1]


@pytest.mark.repeats
def test_a_custom_loop_and_functions_that_were_traced_before(
    strategy: tfps.ParameterServerStrategy,
) -> None:
    coordinator = tfps.ClusterCoordinator(strategy)
    with strategy.scope():
        model = _model()
        optimizer = keras.optimizers.Adam(0.01)

    @tf.function
    def total() -> tf.Tensor:
        return tf.add_n([tf.reduce_sum(v * 1.0) for v in model.trainable_variables])

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(v * 1.0) for v in model.trainable_variables])
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    def run(function: Any) -> float:
        value = coordinator.schedule(function)
        coordinator.join()
        return float(value.fetch())

    names = [v.path for v in model.trainable_variables]
    before, pulled = run(total), strategy.pull(names)[0]
    assert before == pytest.approx(sum(float(v.sum()) for v in pulled.values()), abs=1e-4)
    assert _slabs(model) == set()
    assert run(step) == pytest.approx(before, abs=1e-4)
    _assert_a_slab_for_each(model, lambda v: v.value.device)
    weights = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    after = run(total)
    assert after == pytest.approx(before - 0.01 * weights, abs=1e-3)
    alone, _ = strategy.pull(names[-1:])  # a part of a slab
    np.testing.assert_array_equal(alone[names[-1]], model.trainable_variables[-1].numpy())
    pulled, version = strategy.pull(names)
    assert after == pytest.approx(sum(float(v.sum()) for v in pulled.values()), abs=1e-4)
    strategy.push({name: np.ones_like(value) for name, value in pulled.items()}, version)
    assert run(total) == pytest.approx(after - weights, abs=1e-3)
    _, version = strategy.pull(names)
    gradients = {name: np.ones_like(value) for name, value in pulled.items()}
    strategy.push(gradients, version, optimizer=optimizer)
    assert run(total) == pytest.approx(after - 1.01 * weights, abs=1e-3)


@pytest.mark.repeats
def test_a_tape_on_the_coordinator(strategy: tfps.ParameterServerStrategy) -> None:
    def life(scope: Scope) -> keras.Model:
        with scope():
            model = _model()
        _fit(model)
        return model

    served, local = _both(strategy, life)
    gradients = []
    for model in (served, local):
        with tf.device(LOCAL), tf.GradientTape() as tape:
            loss = LOSS(Y, model(X, training=False))
        gradients.append(tape.gradient(loss, model.trainable_variables))
    for found, expected in zip(*gradients, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.repeats
def test_a_step_of_two_optimizers(strategy: tfps.ParameterServerStrategy) -> None:
    """Each optimizer has its own part, as in a GAN, and the middle layer belongs to both."""

    class AlternatingModel(keras.Model):
        def __init__(self) -> None:
            super().__init__(name="model")
            self.parts = [
                keras.layers.Dense(8, activation="tanh", name=f"part_{i}") for i in range(3)
            ]

        def compile(self, **options: Any) -> None:
            super().compile(**options)
            self.second = keras.optimizers.SGD(0.1, momentum=0.9, name="second")

        def build(self, shape: Any) -> None:
            for part in self.parts:
                part.build((None, 8))
            self.second.build(self._of(1, 2))
            self.built = True

        def _of(self, *indices: int) -> list[Any]:
            return [v for i in indices for v in self.parts[i].trainable_variables]

        def call(self, inputs: tf.Tensor) -> tf.Tensor:
            for part in self.parts:
                inputs = part(inputs)
            return inputs

        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            loss: Any = None
            for optimizer, variables in (
                (self.optimizer, self._of(0, 1)),
                (self.second, self._of(1, 2)),
            ):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((self(x) - y) ** 2)
                optimizer.apply(tape.gradient(loss, variables), variables)
            return {"loss": loss}

    def life(scope: Scope) -> keras.Model:
        keras.utils.set_random_seed(5)
        with scope():
            model = AlternatingModel()
            model.compile(optimizer=keras.optimizers.Adam(0.01))
            model.build((None, 8))
            model.optimizer.build(model._of(0, 1))
        model.fit(X, X[:, ::-1], batch_size=16, epochs=1, shuffle=False, verbose=0)
        return model

    found, local = _both(strategy, life)
    for variable, reference in zip(found.second.variables, local.second.variables, strict=True):
        _assert_equal(variable, reference)
