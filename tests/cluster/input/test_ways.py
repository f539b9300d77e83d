"""Every kind of input that `fit` takes reaches the workers, each example once per epoch."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.cluster.counting import cross_entropy
from tests.cluster.input.numbered_examples import (
    BATCH,
    BATCHES,
    EXAMPLES,
    LABELS,
    X,
    batches,
    dataset,
)
from tests.messages import raises
from tfps.training.input import epoch_iterator
from tfps.training.input.epoch_iterator import IDLE_WORKERS, NOT_EXACT

pytestmark = pytest.mark.timeout(180)


class Batches(keras.utils.PyDataset):
    """Counts its epochs."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.ended = 0

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return X[rows], LABELS[rows]

    def on_epoch_end(self) -> None:
        self.ended += 1


class DatasetCreator:
    """The class of tf_keras, with the attribute that tfps reads."""

    def __init__(self, dataset_fn: Callable[..., tf.data.Dataset]) -> None:
        self.dataset_fn = dataset_fn


class CallableObject:
    def __call__(self, context: tf.distribute.InputContext) -> tf.data.Dataset:
        return _share(context)


def _share(context: tf.distribute.InputContext, batch: int = BATCH) -> tf.data.Dataset:
    examples = tf.data.Dataset.from_tensor_slices((X, LABELS))
    return examples.shard(context.num_input_pipelines, context.input_pipeline_id).batch(batch)


def _all(batch: int = BATCH) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, LABELS)).shuffle(EXAMPLES).batch(batch)


def _all_with_a_global_seed() -> tf.data.Dataset:
    """With it, each shuffle that TensorFlow makes has another seed."""
    keras.utils.set_random_seed(1)
    return _all()


def _with_policy(name: str) -> tf.data.Dataset:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[name]
    return dataset().with_options(options)


def _by_python() -> tf.data.Dataset:
    return tf.data.Dataset.from_generator(
        batches,
        output_signature=(tf.TensorSpec([None, 4], tf.float32), tf.TensorSpec([None, 2], tf.int64)),
    )


INPUTS: dict[str, Callable[[], Any]] = {
    "shuffled without a seed": lambda: (
        tf.data.Dataset.from_tensor_slices((X, LABELS)).shuffle(EXAMPLES).batch(BATCH)
    ),
    "generator": batches,
    "PyDataset": Batches,
    "DatasetCreator": lambda: DatasetCreator(_share),
    "callable object": CallableObject,
    "partial": lambda: functools.partial(_share, batch=4),
    "shards": lambda: tfps.ShardedDataset(_share, number=3),
    "shards of a function without context": lambda: tfps.ShardedDataset(
        _all_with_a_global_seed, number=3
    ),
}
MORE_INPUTS: dict[str, Callable[[], Any]] = {
    "PyDataset with threads": lambda: Batches(workers=2),
    "parallel in any order": lambda: (
        dataset()
        .unbatch()
        .map(lambda x, y: (x, y), num_parallel_calls=4, deterministic=False)
        .batch(BATCH)
        .prefetch(2)
    ),
    "generator dataset": _by_python,
    "sharding policy DATA": lambda: _with_policy("DATA"),
    "one shard": lambda: tfps.ShardedDataset(_share, number=1),
}


@pytest.mark.quick("generator")
@pytest.mark.parametrize("kind", [*INPUTS, *MORE_INPUTS])
def test_each_example_once(kind: str, model: keras.Model, visits: Callable[[], list[int]]) -> None:
    model.fit((INPUTS | MORE_INPUTS)[kind](), verbose=0)
    assert visits() == [1] * EXAMPLES


@pytest.mark.repeats
def test_distributed_datasets_are_taken(
    model: keras.Model, strategy: tfps.ParameterServerStrategy, visits: Callable[[], list[int]]
) -> None:
    model.fit(strategy.distribute_datasets_from_function(_share), verbose=0)
    assert visits() == [1] * EXAMPLES
    model.fit(strategy.experimental_distribute_dataset(dataset()), verbose=0)
    assert visits() == [1] * EXAMPLES


class Together(keras.metrics.Metric):
    """A metric of the examples that were in one batch."""

    def __init__(self) -> None:
        super().__init__(name="together")
        self.pairs = self.add_variable((EXAMPLES, EXAMPLES), initializer="zeros", name="pairs")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        member = keras.ops.sum(keras.ops.one_hot(y_true[:, 1], EXAMPLES), 0)
        self.pairs.assign_add(keras.ops.outer(member, member))

    def result(self) -> Any:
        return keras.ops.max(self.pairs)


@pytest.mark.repeats
def test_epochs_have_the_batches_of_the_datasets_own_iterations(
    strategy: tfps.ParameterServerStrategy,
) -> None:
    tfps.metrics.register_merge(Together, lambda left, right: [left[0] + right[0]])
    with strategy.scope():
        seen = _pairs_of_three_epochs()
    expected = _pairs_of_three_epochs()
    assert len(seen) == len(expected) == 3
    for ours, plain in zip(seen, expected, strict=True):
        np.testing.assert_array_equal(ours, plain)
    assert (seen[0] != seen[1]).any()


def _shuffled() -> tf.data.Dataset:
    examples = tf.data.Dataset.from_tensor_slices((X, LABELS))
    return examples.shuffle(EXAMPLES, seed=7).batch(BATCH)


def _pairs_of_three_epochs() -> list[np.ndarray]:
    together = Together()
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("sgd", cross_entropy, metrics=[together])
    seen: list[np.ndarray] = []
    keep = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(together.pairs.numpy())
    )
    shuffled = _shuffled()
    model.fit(shuffled, epochs=2, verbose=0, callbacks=[keep])
    model.fit(shuffled, epochs=1, verbose=0, callbacks=[keep])
    return seen


@pytest.mark.repeats
@pytest.mark.parametrize("function", [_share, _all, DatasetCreator(_share)])
def test_an_evaluation_with_a_function_visits_each_example_once(
    function: Any, model: keras.Model, visits: Callable[[], list[int]]
) -> None:
    expected = model.evaluate(X, LABELS, verbose=0)
    for _ in range(2):
        assert model.evaluate(function, verbose=0) == pytest.approx(expected)
        assert visits() == [1] * EXAMPLES
    model.evaluate(function, steps=3, verbose=0)
    assert sum(visits()) == 3 * BATCH


@pytest.mark.repeats
def test_fit_says_once_that_a_function_is_not_exact(
    model: keras.Model, visits: Callable[[], list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    epoch_iterator.warn_once.cache_clear()
    for _ in range(2):
        model.fit(_share, validation_data=_share, verbose=0)
        model.evaluate(_share, verbose=0)
    model.fit(
        tfps.ShardedDataset(_share, number=1),
        validation_data=tfps.ShardedDataset(_all, number=3),
        verbose=0,
    )
    assert visits() == [1] * EXAMPLES
    messages = [r.getMessage() for r in caplog.records if r.name == epoch_iterator.__name__]
    assert messages == [NOT_EXACT, IDLE_WORKERS % (1, 2, 1)]


@pytest.mark.repeats
def test_targets_beside_a_dataset_function_are_refused(model: keras.Model) -> None:
    with raises(ValueError, "y: ", received="an array", remedy="the function's dataset"):
        model.fit(_share, LABELS, verbose=0)


@pytest.mark.rare
def test_policy_off_shows_everything_to_each_worker(
    model: keras.Model, visits: Callable[[], list[int]]
) -> None:
    model.fit(_with_policy("OFF"), verbose=0)
    assert visits() == [2] * EXAMPLES
    model.evaluate(_with_policy("OFF"), verbose=0)
    assert visits() == [1] * EXAMPLES


@pytest.mark.rare
def test_policy_file_gives_each_worker_its_files(
    model: keras.Model, visits: Callable[[], list[int]], tmp_path: Path
) -> None:
    names = []
    for part in range(4):
        names.append(str(tmp_path / f"part-{part}"))
        with tf.io.TFRecordWriter(names[-1]) as writer:
            for number in range(part, EXAMPLES, 4):
                writer.write(tf.io.serialize_tensor(tf.constant(number, tf.int64)).numpy())
    x, labels = tf.constant(X), tf.constant(LABELS)

    def example(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        number = tf.ensure_shape(tf.io.parse_tensor(record, tf.int64), [])
        return x[number], labels[number]

    options = tf.data.Options()
    policies = tf.data.experimental.AutoShardPolicy
    options.experimental_distribute.auto_shard_policy = policies.FILE
    files = tf.data.TFRecordDataset(names).map(example).batch(BATCH)
    model.fit(files.with_options(options), verbose=0)
    assert visits() == [1] * EXAMPLES
    model.fit(files, verbose=0)
    assert visits() == [1] * EXAMPLES


@pytest.mark.repeats
def test_epoch_hooks_of_a_pydataset(model: keras.Model) -> None:
    ours, plain = Batches(), Batches()
    model.fit(ours, epochs=3, verbose=0)
    _on_one_machine().fit(plain, epochs=3, verbose=0)
    assert ours.ended == plain.ended


def _on_one_machine() -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    return model


@pytest.mark.repeats
def test_repeated_dataset_goes_on_in_the_next_epoch_on_the_workers(
    model: keras.Model, visits: Callable[[], list[int]]
) -> None:
    model.fit(dataset().repeat(), steps_per_epoch=5, epochs=2, verbose=0)
    assert visits() == [1 if 40 <= number < 80 else 0 for number in range(EXAMPLES)]


@pytest.mark.rare
@pytest.mark.parametrize("empty", [lambda: (X[:0], LABELS[:0]), lambda: (dataset().take(0), None)])
def test_empty_input_trains_nothing(empty: Callable[[], Any], model: keras.Model) -> None:
    x, y = empty()
    iterations = int(model.optimizer.iterations.numpy())
    with pytest.warns(UserWarning, match="ran out of data|shuffle=True"):
        model.fit(x, y, verbose=0)
    assert int(model.optimizer.iterations.numpy()) == iterations


@pytest.mark.repeats
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("dataset", "iterated by every worker"),
        ("generator", "on the chief and sent batch by batch: it calls Python"),
        ("arrays", "arrays, copied to every worker once"),
        ("function", "called on every worker"),
    ],
)
def test_fit_says_which_way_and_how_long_workers_waited(
    kind: str, words: str, model: keras.Model, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs: dict[str, Callable[[], dict[str, Any]]] = {
        "arrays": lambda: {"x": X, "y": LABELS, "batch_size": BATCH},
        "dataset": lambda: {"x": dataset()},
        "generator": lambda: {"x": batches()},
        "function": lambda: {"x": _share},
    }
    model.fit(**inputs[kind](), verbose=2)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("input: ") and words in line for line in lines)
    assert any(line.startswith("input: workers waited ") for line in lines)


@pytest.mark.repeats
def test_quiet_fit_logs_the_way(model: keras.Model, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="tfps"):
        model.fit(X, LABELS, verbose=0)
    assert "input: arrays" in caplog.text
