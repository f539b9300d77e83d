"""Inputs of many shapes: a step is traced once for the first one, and once for all others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import Comparison
from tfps.runtime.compile.compiled import CompiledProgram
from tfps.training import step_compiler

pytestmark = pytest.mark.timeout(300)

LENGTHS = range(3, 9)


def model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(20, 4),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(1),
        ]
    )


def compiled() -> keras.Model:
    made = model()
    made.compile("sgd", "mse")
    return made


def batch(length: int, size: int = 8) -> tuple[np.ndarray, np.ndarray]:
    ids = np.arange(size * length, dtype="int32").reshape(size, length) % 20
    return ids, np.ones((size, 1), "float32")


def single_batches(model: keras.Model) -> Iterator[Any]:
    for length in LENGTHS:
        yield model.train_on_batch(*batch(length))


def batches_for_evaluation(model: keras.Model) -> Iterator[Any]:
    for length in LENGTHS:
        yield model.test_on_batch(*batch(length))


def arrays(model: keras.Model) -> Iterator[Any]:
    for length in LENGTHS:
        yield model.fit(*batch(length), batch_size=length, shuffle=False, verbose=0).history["loss"]


def datasets(model: keras.Model) -> Iterator[Any]:
    for length in LENGTHS:
        data = tf.data.Dataset.from_tensor_slices(batch(length)).batch(4)
        yield model.fit(data, verbose=0).history["loss"]


def dataset_functions(model: keras.Model) -> Iterator[Any]:
    for length in LENGTHS:
        data = tf.data.Dataset.from_tensor_slices(batch(length)).batch(4, drop_remainder=True)
        x = data if model._distribute_strategy is None else lambda data=data: data
        yield model.fit(x, steps_per_epoch=2, verbose=0).history["loss"]


def generators(model: keras.Model, lengths: Iterable[int] = LENGTHS) -> Iterator[Any]:
    for length in lengths:
        data = (batch(length) for _ in range(2))
        yield model.fit(data, steps_per_epoch=2, verbose=0).history["loss"]


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the programs that were compiled."""
    names: list[str] = []

    def counted(program: Any, **options: Any) -> Any:
        names.append(program.name)
        return CompiledProgram(program, **options)

    monkeypatch.setattr(step_compiler, "CompiledProgram", counted)
    return names


@pytest.mark.parametrize(
    "use",
    [
        single_batches,
        *(
            pytest.param(each, marks=pytest.mark.repeats)
            for each in (batches_for_evaluation, arrays, datasets, dataset_functions, generators)
        ),
    ],
)
def test_two_traces_for_all_shapes(
    comparison: Comparison, compilations: list[str], use: Callable[[keras.Model], Iterator[Any]]
) -> None:
    comparison.run(compiled, lambda model: {"losses": np.array(list(use(model)))})
    assert len(compilations) == 2


@pytest.mark.rare
def test_a_new_generator_needs_no_new_trace(
    comparison: Comparison, compilations: list[str]
) -> None:
    """Each one was compiled for anew, and the servers kept much of the memory of the old ones."""
    comparison.run(compiled, lambda model: {"losses": list(generators(model, [4, 4, 4]))})
    assert len(compilations) == 1


def test_functions_that_reduce_retracing(strategy: tfps.ParameterServerStrategy) -> None:
    """A scheduled function is traced as often as `tf.function` says."""
    traces: list[Any] = []
    with strategy.scope():
        weight = keras.Variable(2.0, name="weight")

    @tf.function(reduce_retracing=True)
    def scale(x: tf.Tensor) -> tf.Tensor:
        traces.append(x.shape)
        return tf.reduce_sum(x) * weight.value

    coordinator = strategy.coordinator
    sums = [coordinator.schedule(scale, (tf.ones([length]),)) for length in LENGTHS]
    coordinator.join()
    assert [float(each.fetch()) for each in sums] == [2.0 * length for length in LENGTHS]
    assert {shape.rank and shape[0] for shape in traces} == {LENGTHS[0], None}
