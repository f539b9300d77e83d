"""The errors of `pull_rows` and `push_rows`: what is wrong, why, and what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tests.unit.numbers.partitioned import strategy_with
from tfps.errors import ConfigError, UnsupportedError
from tfps.optimizers import DANA
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(180)

ROWS, WIDTH = 11, 3
TABLE = np.arange(ROWS * WIDTH, dtype="float32").reshape(ROWS, WIDTH)
IDS, GRADIENTS = [2, 5], np.ones([2, WIDTH], "float32")


@pytest.fixture(scope="module")
def named(strategy: tfps.ParameterServerStrategy) -> dict[str, Any]:
    """The tables that are asked for, with one optimizer that trains them."""
    with strategy.scope():
        variables = [
            keras.Variable(TABLE, name="words"),
            keras.Variable(np.zeros(ROWS, "float32"), name="bias"),
            keras.Variable(np.zeros([], "float32"), name="scale"),
        ]
        optimizer = keras.optimizers.Adagrad(0.1)
        optimizer.build(variables[:1])
    return {**{variable.path: variable for variable in variables}, "by": optimizer}


PULLS: dict[str, tuple[Any, Any, tuple[str, str, str]]] = {
    "outside": ("words", [2, 11, 3], ("ids", "11 at position 1", "expected 0 to 10")),
    "negative": ("words", [-1], ("ids", "-1 at position 0", "expected 0 to 10")),
    "large": ("words", np.array([1 << 62]), ("ids", f"{1 << 62} at position 0", "0 to 10")),
    "floats": ("words", [1.5], ("ids", "float32", "integers")),
    "texts": ("words", ["a"], ("ids", "string", "integers")),
    "matrix": ("words", [[1, 2]], ("ids", "shape (1, 2)", "tf.reshape")),
    "scalar": ("words", 1, ("ids", "shape ()", "tf.reshape")),
    "ragged": (
        "words",
        tf.ragged.constant([[1], [2, 3]]),
        ("ids", "RaggedTensor", "a vector of integers"),
    ),
    "unknown": ("word", [1], ("name", "['word']", "did you mean 'words'?")),
    "far": ("zzzz", [1], ("name", "['zzzz']", "'words'")),
    "no name": (["words"], [1], ("name", "['words']", "the name of one table")),
    "vector": ("bias", [1], ("name", "'bias' of shape (11,)", "strategy.pull()")),
    "one number": ("scale", [0], ("name", "'scale' of shape ()", "strategy.pull()")),
}


@pytest.mark.parametrize("case", PULLS)
def test_wrong_pulls(
    case: str, strategy: tfps.ParameterServerStrategy, named: dict[str, Any]
) -> None:
    name, ids, (key, received, remedy) = PULLS[case]
    with raises(ConfigError, f"{key}: ", received=received, remedy=remedy):
        strategy.pull_rows(name, ids)
    with raises(ConfigError, f"{key}: ", received=received, remedy=remedy):
        strategy.push_rows(name, ids, GRADIENTS, strategy.pull([])[1])


PUSHES: dict[str, tuple[Any, Any, tuple[str, str, str]]] = {
    "fewer": (GRADIENTS[:1], None, ("gradients", "shape (1, 3)", "expected (2, 3)")),
    "narrower": (GRADIENTS[:, 1:], None, ("gradients", "shape (2, 2)", "expected (2, 3)")),
    "one number": (1.0, None, ("gradients", "shape ()", "expected (2, 3)")),
    "integers": (np.ones([2, 3], "int32"), None, ("gradients", "int32", "expected float32")),
    "missing": (None, None, ("gradients", "NoneType", "float32 of shape (2, 3)")),
    "version of one": (GRADIENTS, [0], ("version", "int64 of shape (1,)", "of a pull")),
    "no integers": (GRADIENTS, [0.5, 0.5], ("version", "float32", "of a pull")),
    "negative": (GRADIENTS, [-1, 0], ("version", "[-1, 0]", "of a pull")),
}


@pytest.mark.parametrize("case", PUSHES)
def test_wrong_pushes(
    case: str, strategy: tfps.ParameterServerStrategy, named: dict[str, Any]
) -> None:
    gradients, version, (key, received, remedy) = PUSHES[case]
    with raises(ConfigError, f"{key}: ", received=received, remedy=remedy):
        strategy.push_rows("words", IDS, gradients, [0, 0] if version is None else version)
    np.testing.assert_array_equal(named["words"].numpy(), TABLE)


def _built(make: Callable[[], Any]) -> Callable[[dict[str, Any]], Any]:
    def build(named: dict[str, Any]) -> Any:
        optimizer = make()
        optimizer.build([named["words"]])
        return optimizer

    return build


OPTIMIZERS: dict[str, tuple[Callable[[dict[str, Any]], Any], str, str]] = {
    "a name": (lambda _: "adam", "'adam'", "or None"),
    "not built": (
        lambda _: keras.optimizers.SGD(),
        "SGD, which does not train words",
        "optimizer.build(variables)",
    ),
    "of another": (
        lambda named: named["by"],
        "Adagrad, which does not train other",
        "optimizer.build(variables)",
    ),
    "lamb": (_built(keras.optimizers.Lamb), "Lamb", "keras.optimizers.Adagrad"),
    "averages": (
        _built(lambda: keras.optimizers.Adam(use_ema=True)),
        "Adam(use_ema=True)",
        "use_ema=False",
    ),
    "of workers": (_built(DANA), "DANA", "StalenessAware"),
}


@pytest.mark.parametrize("case", OPTIMIZERS)
def test_optimizers_that_cannot_update_rows(
    case: str, strategy: tfps.ParameterServerStrategy, named: dict[str, Any]
) -> None:
    make, received, remedy = OPTIMIZERS[case]
    with strategy.scope():
        optimizer = make(named)
        other = keras.Variable(TABLE, name="other")
    name = other.path if case == "of another" else "words"
    _, version = strategy.pull_rows(name, IDS)
    with raises(ConfigError, "strategy.push_rows(): optimizer: ", received=received, remedy=remedy):
        strategy.push_rows(name, IDS, GRADIENTS, version, optimizer=optimizer)


@pytest.mark.rare
def test_a_constraint_across_rows(strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        layer = keras.layers.Embedding(
            ROWS, WIDTH, embeddings_constraint=keras.constraints.MaxNorm(1.0, axis=0)
        )
        layer.build()
        optimizer = keras.optimizers.SGD()
        optimizer.build(layer.trainable_variables)
    path = layer.embeddings.path
    _, version = strategy.pull_rows(path, IDS)
    with raises(UnsupportedError, path, received="MaxNorm", remedy="MaxNorm(axis=1)"):
        strategy.push_rows(path, IDS, GRADIENTS, version, optimizer=optimizer)


def test_an_optimizer_for_a_raw_variable(cluster: Callable[..., InProcessCluster]) -> None:
    with strategy_with(cluster(workers=1, ps=2), None) as strategy:
        with strategy.scope():
            table = tf.Variable(TABLE, name="raw")
            optimizer = keras.optimizers.SGD()
        assert table.shape == TABLE.shape
        with raises(
            ConfigError, "optimizer: ", received="tf.Variable raw", remedy="keras.Variable"
        ):
            strategy.push_rows("raw", IDS, GRADIENTS, [0, 0], optimizer=optimizer)


@pytest.mark.repeats
@pytest.mark.parametrize("ahead", [[1, 1], [0, 1 << 40]])
def test_a_version_that_no_server_has_reached(
    ahead: list[int], strategy: tfps.ParameterServerStrategy
) -> None:
    with strategy.scope():
        table = keras.Variable(TABLE, name="later")
    _, version = strategy.pull_rows(table.path, IDS)
    wrong, before = version + ahead, strategy.stats()
    text = " ".join(map(str, wrong))
    with raises(tf.errors.InvalidArgumentError, "version: ", received=text, remedy="pull again"):
        strategy.push_rows(table.path, [], np.zeros([0, WIDTH]), wrong)
    with raises(tf.errors.InvalidArgumentError, "version: ", received=text, remedy="pull again"):
        strategy.push({}, wrong)
    after = strategy.stats()
    assert after.gradient_staleness_updates.keys() <= {*before.gradient_staleness_updates, 0, 1}
    assert after.versions[1] == before.versions[1]


@pytest.mark.quick("False")
@pytest.mark.parametrize("on_worker", [False, True])
def test_a_version_that_one_server_has_not_reached_changes_nothing_anywhere(
    on_worker: bool, strategy: tfps.ParameterServerStrategy
) -> None:
    with strategy.scope():
        table = keras.Variable(TABLE, name=f"later_on_worker_{on_worker}")
    ids, gradients = list(range(ROWS)), np.ones_like(TABLE)  # of rows of both servers
    _, version = strategy.pull_rows(table.path, ids)
    before = strategy.stats()

    def push() -> None:
        wrong = tf.constant(np.add(version, [0, 1]))
        strategy.push_rows(table.path, ids, tf.constant(gradients), wrong)

    def run() -> None:
        if on_worker:
            strategy.coordinator.schedule(tf.function(push))
            strategy.coordinator.join()
        else:
            push()

    with raises(
        tf.errors.InvalidArgumentError,
        "version: ",
        received="no server has applied the push",
        remedy="pull again",
    ):
        run()
    np.testing.assert_array_equal(table.numpy(), TABLE)
    after = strategy.stats()
    assert after.versions == before.versions
    assert after.gradient_staleness_updates == before.gradient_staleness_updates
    strategy.push_rows(table.path, ids, gradients, version)
    np.testing.assert_array_equal(table.numpy(), TABLE - 1)


@pytest.mark.repeats
def test_a_push_from_a_pull_of_the_same_function_asks_nobody(
    strategy: tfps.ParameterServerStrategy,
) -> None:
    with strategy.scope():
        table = keras.Variable(TABLE, name="asks_nobody")

    @tf.function
    def twice() -> None:
        rows, version = strategy.pull_rows(table.path, tf.constant(IDS))
        version, _ = strategy.push_rows(table.path, tf.constant(IDS), rows, version)
        strategy.push_rows(table.path, tf.constant(IDS), rows, version)

    before = strategy.stats().exchanges
    strategy.coordinator.schedule(twice)
    strategy.coordinator.join()
    counts = zip(before, strategy.stats().exchanges, strict=True)
    assert [now - then for then, now in counts] == [3, 3]


WRONG_IN_FUNCTIONS: dict[
    str, tuple[Callable[[Any], Any], type[Exception], tuple[str, str, str]]
] = {
    "pulled outside": (
        lambda strategy: strategy.pull_rows("words", tf.constant([2, 11])),
        tf.errors.InvalidArgumentError,
        ("ids for words: ", "[11]", "expected 0 to 10"),
    ),
    "pushed outside": (
        lambda strategy: strategy.push_rows("words", tf.constant([-3, 1]), GRADIENTS, [0, 0]),
        tf.errors.InvalidArgumentError,
        ("ids for words: ", "[-3]", "expected 0 to 10"),
    ),
    "version": (
        lambda strategy: strategy.push_rows("words", IDS, GRADIENTS, [1 << 40, 1 << 40]),
        tf.errors.InvalidArgumentError,
        ("version: ", str(1 << 40), "pull again"),
    ),
    "dtype": (
        lambda strategy: strategy.pull_rows("words", tf.constant([1.0])),
        ConfigError,
        ("ids: ", "float32", "integers"),
    ),
    "unknown": (
        lambda strategy: strategy.pull_rows("word", tf.constant([1])),
        ConfigError,
        ("name: ", "['word']", "did you mean 'words'?"),
    ),
}


@pytest.mark.quick("pulled outside")
@pytest.mark.parametrize("case", WRONG_IN_FUNCTIONS)
def test_in_a_scheduled_function(
    case: str, strategy: tfps.ParameterServerStrategy, named: dict[str, Any]
) -> None:
    wrong, kind, (key, received, remedy) = WRONG_IN_FUNCTIONS[case]
    coordinator = strategy.coordinator

    def run() -> None:
        coordinator.schedule(tf.function(lambda: wrong(strategy)))
        coordinator.join()

    with raises(kind, key, received=received, remedy=remedy):
        run()
    np.testing.assert_array_equal(named["words"].numpy(), TABLE)


@pytest.mark.rare
@pytest.mark.parametrize("mode", [tfps.Synchronous(), tfps.BoundedStaleness(1)])
def test_the_chief_pushes_rows_where_functions_may_not(
    mode: Any, cluster: Callable[..., InProcessCluster]
) -> None:
    with strategy_with(cluster(workers=1, ps=2), None, consistency=mode) as strategy:
        with strategy.scope():
            table = keras.Variable(TABLE, name="table")

        rows, version = strategy.pull_rows("table", IDS)
        strategy.push_rows("table", IDS, rows, version)
        expected = TABLE.copy()
        expected[IDS] = 0
        np.testing.assert_array_equal(table.numpy(), expected)
