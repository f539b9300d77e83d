"""Layers and configurations of Keras Recommenders, as they are, on parameter servers."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.collections_model import IDS, USERS, WEIGHTS, WIDTH, dataset, recommender
from tests.unit.numbers.comparison import BATCH, EXAMPLES, Comparison, assert_same, cross_entropy
from tests.unit.numbers.tables import EXACT
from tfps.layers import EmbeddingCollection, Table

keras_rs = pytest.importorskip("keras_rs", reason="needs the extra recommender: keras-rs")
pytestmark = pytest.mark.timeout(240)

NAMES = ("friends", "seen", "basket")


def _features() -> dict[str, Any]:
    """Over two tables, one of them shared."""
    users, items = (
        keras_rs.layers.TableConfig(name, rows, WIDTH, combiner=combiner, optimizer="adagrad")
        for name, rows, combiner in (("users", USERS, "mean"), ("items", 301, "sqrtn"))
    )
    tables = {"friends": users, "seen": items, "basket": items}
    return {
        name: keras_rs.layers.FeatureConfig(name, table, (BATCH, None), (BATCH, WIDTH))
        for name, table in tables.items()
    }


class Distributed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.collection = keras_rs.layers.DistributedEmbedding(_features())
        self.own = keras_rs.layers.EmbedReduce(301, WIDTH, combiner="sum", name="own")
        self.head = keras.layers.Dense(3)

    def call(self, inputs: Any) -> Any:
        ids, weights = inputs["ids"], inputs["weights"]
        rows = self.collection(ids, weights)
        return self.head(tf.concat([*rows.values(), self.own(ids["seen"])], 1))


def _distributed() -> keras.Model:
    model = Distributed()
    batch = {name: {n: each[n][:BATCH] for n in NAMES} for name, each in _inputs().items()}
    model(batch)
    model.compile(EXACT["sgd"](), cross_entropy())
    return model


def _inputs() -> dict[str, Any]:
    dense = {**IDS, "seen": tf.sparse.to_dense(IDS["seen"])}
    weights = {**WEIGHTS, "seen": tf.sparse.to_dense(WEIGHTS["seen"])}
    return {"ids": dense, "weights": weights}


def _fit(model: keras.Model) -> dict[str, Any]:
    history: dict[str, Any] = model.fit(dataset(NAMES), epochs=2, shuffle=False, verbose=0).history
    return history


@pytest.mark.rare
def test_distributed_embedding_and_embed_reduce(strategy: tfps.ParameterServerStrategy) -> None:
    """Ragged, sparse and dense ids, with weights: numbers of one process, and rows that travel."""
    Comparison(strategy).run(_distributed, _fit)
    assert strategy.stats().fallback_steps == 0


@pytest.mark.rare
def test_a_collection_takes_its_configurations(strategy: tfps.ParameterServerStrategy) -> None:
    """Also the optimizers that they name."""

    def make() -> keras.Model:
        features = _features()
        optimizers = EmbeddingCollection(features).optimizers
        return recommender(lambda: tfps.optimizers.ByTable(optimizers, "sgd"), features)

    model = Comparison(strategy).run(make, _fit)
    assert model.collection.features["seen"].combiner == "sqrtn"
    kinds = [type(each.inner_optimizer).__name__ for each in model.optimizer.optimizers[:-1]]
    assert kinds == ["Adagrad"]


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_it_answers_what_embed_reduce_answers(combiner: str) -> None:
    """In one process, for each form of ids."""
    matrix = np.random.default_rng(2).normal(size=(301, WIDTH)).astype("float32")
    initializer = keras.initializers.Constant(matrix)
    table = Table("items", 301, WIDTH, combiner=combiner, initializer=initializer)
    theirs = keras_rs.layers.EmbedReduce(301, WIDTH, initializer, combiner=combiner)
    ours = EmbeddingCollection(dict.fromkeys((*NAMES, "user"), table))
    ids = {name: IDS[name] for name in (*NAMES, "user")}
    for name, found in ours(ids, WEIGHTS).items():
        assert found.shape == (EXAMPLES, WIDTH)
        assert_same(found, theirs(ids[name], WEIGHTS.get(name)))
