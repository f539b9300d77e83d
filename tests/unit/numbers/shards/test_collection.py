"""`EmbeddingCollection` on parameter servers: the numbers of one process, rows in one request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tests.unit.numbers.collections_model import IDS, USERS, dataset, items, recommender, users
from tests.unit.numbers.comparison import LABELS, LOCAL, Comparison, assert_same, cross_entropy, fit
from tests.unit.numbers.many_tables import LOOK_UP, PUSH, exchanges_of, requests_of_a_run
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tests.unit.numbers.tables import EXACT
from tfps.bridge.variables.shards import get_shards
from tfps.errors import ConfigError
from tfps.layers import EmbeddingCollection, Table
from tfps.optimizers import ByTable
from tfps.optimizers.wrapped import get_leaf_optimizers
from tfps.strategy import extended
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(240)


def _fit(model: Any) -> dict[str, Any]:
    data = dataset(model.collection.features)
    history: dict[str, Any] = model.fit(data, epochs=2, shuffle=False, verbose=0).history
    return history


@pytest.mark.repeats
def test_one_request_to_each_server(cluster: Callable[..., InProcessCluster]) -> None:
    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS["shuffle"]) as strategy:
        with strategy.scope():
            model = recommender(EXACT["sgd"])
        run = exchanges_of(strategy, lambda: model.fit(dataset(), shuffle=False, verbose=0))
        assert run == requests_of_a_run(LOOK_UP + PUSH, servers=2)


def _by_table() -> Any:
    others = keras.optimizers.SGD(0.1)
    return ByTable({"users": keras.optimizers.Adagrad(0.1), "items": "sgd"}, others)


@pytest.mark.slow
def test_an_optimizer_for_each_table(cluster: Callable[..., InProcessCluster]) -> None:
    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS["shuffle"]) as strategy:
        model = Comparison(strategy).run(lambda: recommender(_by_table), _fit)
        rates = [type(leaf).__name__ for leaf in get_leaf_optimizers(model.optimizer)]
        assert rates == ["Adagrad", "SGD", "SGD"]
        assert strategy.stats().fallback_steps == 0


@pytest.mark.rare
@pytest.mark.parametrize("partitioner", ["shuffle", "fixed"])
def test_a_large_table_that_was_trained_before(
    partitioner: str, cluster: Callable[..., InProcessCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is divided, and begins as it ended: made on its servers, as above 64 MiB."""
    monkeypatch.setattr(extended, "WHOLE_BYTES", 1000)
    matrix = np.random.default_rng(0).normal(size=(501, 3)).astype("float32")
    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS[partitioner]) as strategy:
        with strategy.scope():
            table = Table("t", 501, 3, initializer=keras.initializers.Constant(matrix))
            collection = EmbeddingCollection({"seen": table})
            collection.build()
        assert len(get_shards(collection.weights[0])) > 1
        np.testing.assert_array_equal(collection.weights[0].numpy(), matrix)
        rows = collection({"seen": tf.constant([500, 3, 250])})["seen"]
        np.testing.assert_array_equal(rows, matrix[[500, 3, 250]])


# A quicker one, of single tables, is test_saving.py.
@pytest.mark.repeats
def test_it_is_kept_and_restored_in_another_division(
    cluster: Callable[..., InProcessCluster], tmp_path: Path
) -> None:
    """Trained on after it came from two servers to three, and to one process: the same numbers."""
    with strategy_with(cluster(workers=1, ps=2), PARTITIONERS["shuffle"]) as strategy:
        with strategy.scope():
            model = recommender(_by_table)
        _fit(model)
        tfps.CheckpointManager(model, tmp_path / "kept").save(background=False)
        kept = [weight.copy() for weight in model.get_weights()]
        _fit(model)
        trained = model.get_weights()
    with strategy_with(cluster(workers=1, ps=3), PARTITIONERS["modulo"]) as strategy:
        keras.utils.set_random_seed(99)
        with strategy.scope():
            again = recommender(_by_table)
        tfps.CheckpointManager(again, tmp_path / "kept").restore_latest()
        assert_same(again.get_weights(), kept, tolerance=0)
        _fit(again)
        assert_same(again.get_weights(), trained)
    with tf.device(LOCAL):
        alone = recommender(_by_table)
        tfps.CheckpointManager(alone, tmp_path / "kept").restore_latest()
        assert_same(alone.get_weights(), kept, tolerance=0)


@pytest.mark.repeats
def test_what_was_trained_on_servers_is_served_in_plain_tensorflow(
    strategy: tfps.ParameterServerStrategy, tmp_path: Path
) -> None:
    with strategy.scope():
        inputs = {"user": keras.Input((), name="user", dtype="int64")}
        inputs["shown"] = keras.Input((3,), name="shown", dtype="int64")
        rows = EmbeddingCollection({"user": users, "shown": items}, name="served")(inputs)
        joined = keras.layers.Concatenate()(list(rows.values()))
        model = keras.Model(inputs, keras.layers.Dense(3)(joined))
        model.compile(ByTable({"users": "adagrad"}, "sgd"), cross_entropy())
    batch = {"user": tf.constant(IDS["user"]), "shown": tf.constant(IDS["basket"])}
    fit(model, batch, LABELS, epochs=1)
    model.export(tmp_path / "model", verbose=False)
    served = tf.saved_model.load(tmp_path / "model")
    assert_same(served.serve(batch), model.predict(batch, verbose=0))
    with raises(tf.errors.InvalidArgumentError, "served: feature user: ", received="[-7]"):
        served.serve({**batch, "user": batch["user"] * 0 - 7})


@pytest.mark.repeats
@pytest.mark.parametrize("wrong", [-1, USERS], ids=["negative", "large"])
def test_wrong_ids_name_the_feature(wrong: int, strategy: tfps.ParameterServerStrategy) -> None:
    with strategy.scope():
        model = recommender(EXACT["sgd"])
    data = dataset().map(
        lambda x, y: ({**x, "ids": {**x["ids"], "user": x["ids"]["user"] * 0 + wrong}}, y)
    )
    key = "collection: feature user: ids for the table users"
    with raises(tf.errors.InvalidArgumentError, key, received=f"[{wrong}]"):
        model.fit(data, shuffle=False, verbose=0)


def test_a_ragged_feature_of_rank_3_is_refused_before_training(
    strategy: tfps.ParameterServerStrategy,
) -> None:
    with strategy.scope():
        model = recommender(EXACT["sgd"])
    before = strategy.stats().updates_applied
    data = dataset().map(
        lambda x, y: ({"ids": {**x["ids"], "friends": tf.expand_dims(x["ids"]["friends"], 2)}}, y)
    )
    with raises(
        ConfigError,
        "collection: feature 'friends'",
        received="ragged ids of rank 3",
        remedy="merge_dims",
    ):
        model.fit(data, shuffle=False, verbose=0)
    assert strategy.stats().updates_applied == before
