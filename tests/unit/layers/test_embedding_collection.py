"""`EmbeddingCollection` in one process: what it returns, keeps and refuses."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.messages import raises
from tfps.errors import ConfigError
from tfps.layers import EmbeddingCollection, Table

ROWS, WIDTH = 7, 3
MATRIX = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype("float32")
TABLE = Table("items", ROWS, WIDTH, initializer=keras.initializers.Constant(MATRIX))
EXAMPLES = [[1, 2, 2], [], [6], [0, 5]]
WEIGHTS = [[0.5, 2.0, 1.0], [], [3.0], [1.5, 0.25]]
COMBINERS = ["sum", "mean", "sqrtn", None]


def _expected(ids: list[int], weights: list[float], combiner: str | None) -> np.ndarray:
    rows = MATRIX[np.array(ids, int)] * np.array(weights, "float32")[:, None]
    divisor = {"mean": sum(weights), "sqrtn": sum(weight**2 for weight in weights) ** 0.5}.get(
        combiner or "", 1.0
    )
    if combiner is None:
        return rows
    return rows.sum(0) / divisor if divisor else np.zeros(WIDTH)


def _form(values: list[list[Any]], form: str, dtype: str) -> Any:
    ragged = tf.ragged.constant(values, dtype)
    return ragged.to_sparse() if form == "sparse" else ragged


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("form", ["ragged", "sparse"])
@pytest.mark.parametrize("is_weighted", [False, True], ids=["plain", "weighted"])
def test_examples_that_differ_in_their_number_of_ids(
    is_weighted: bool, form: str, combiner: str | None
) -> None:
    layer = EmbeddingCollection({"seen": dataclasses.replace(TABLE, combiner=combiner)})
    weights = WEIGHTS if is_weighted else [[1.0] * len(ids) for ids in EXAMPLES]
    given = {"seen": _form(WEIGHTS, form, "float32")} if is_weighted else None
    found = layer({"seen": _form(EXAMPLES, form, "int32")}, given)["seen"]
    expected = [_expected(*each, combiner) for each in zip(EXAMPLES, weights, strict=True)]
    assert isinstance(found, tf.RaggedTensor) == (combiner is None)
    for row, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(row, wanted, rtol=1e-5)


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("ids", [[1, 6], [[1, 2, 2], [5, 6, 0]]], ids=["vector", "matrix"])
def test_dense_ids(ids: list[Any], combiner: str | None) -> None:
    layer = EmbeddingCollection({"seen": dataclasses.replace(TABLE, combiner=combiner)})
    weights = np.random.default_rng(1).uniform(0.5, 2, np.shape(ids)).astype("float32")
    found = layer({"seen": np.array(ids)}, {"seen": weights})["seen"]
    for row, example, each in zip(found, ids, weights, strict=True):
        wanted = _expected(list(np.atleast_1d(example)), list(np.atleast_1d(each)), combiner)
        np.testing.assert_allclose(row, wanted.reshape(row.shape), rtol=1e-5)
    symbolic = layer({"seen": keras.Input(np.shape(ids)[1:], dtype="int64")})["seen"]
    assert symbolic.shape[1:] == found.shape[1:]


def test_features_of_one_table_share_its_rows() -> None:
    apart = dataclasses.replace(TABLE, combiner=None)
    layer = EmbeddingCollection({"seen": TABLE, "wanted": apart}, name="mine")
    layer({"seen": tf.constant([1])})
    assert [weight.path for weight in layer.weights] == ["mine/items/embeddings"]
    with tf.GradientTape() as tape:
        rows = layer({"seen": tf.constant([1]), "wanted": tf.constant([[1, 2]])})
        loss = tf.reduce_sum(rows["seen"]) + tf.reduce_sum(rows["wanted"])
    gradient = tf.convert_to_tensor(tape.gradient(loss, layer.weights[0].value))
    np.testing.assert_array_equal(gradient[:, 0], [0, 2, 1, 0, 0, 0, 0])


def test_a_call_may_have_some_of_the_features() -> None:
    layer = EmbeddingCollection({"seen": TABLE, "user": Table("users", 4, 2)})
    assert list(layer({"seen": tf.constant([1])})) == ["seen"]
    assert {table.name: table.built for table in layer.tables.values()} == {
        "items": True,
        "users": True,
    }


def _inputs() -> dict[str, Any]:
    return {
        "seen": keras.Input((None,), name="seen", dtype="int64", ragged=True),
        "user": keras.Input((), name="user", dtype="int64"),
        "shown": keras.Input((5,), name="shown", dtype="int64", sparse=True),
    }


def _functional() -> keras.Model:
    features = {"seen": TABLE, "user": Table("users", 4, 2, trainable=False), "shown": TABLE}
    inputs = _inputs()
    rows = EmbeddingCollection(features, name="features")(inputs)
    joined = keras.layers.Concatenate()([rows[name] for name in sorted(rows)])
    return keras.Model(inputs, keras.layers.Dense(1)(joined))


BATCH = {
    "seen": tf.ragged.constant(EXAMPLES, "int64"),
    "user": tf.constant([0, 3, 1, 1], "int64"),
    "shown": tf.ragged.constant([[1], [2, 3], [], [4] * 5], "int64").to_sparse(),
}


def test_a_functional_model_is_saved_and_loaded(tmp_path: Path) -> None:
    model = _functional()
    model.compile("adagrad", "mse")
    model.fit(BATCH, np.ones([4, 1]), verbose=0)
    assert [v.path.split("/")[1] for v in model.layers[-3].non_trainable_variables] == ["users"]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(BATCH), model(BATCH))
    assert loaded.get_layer("features").features["user"].trainable is False
    assert not np.array_equal(model.get_layer("features").weights[0], MATRIX)


@pytest.mark.slow
def test_an_exported_model_answers_and_refuses_in_plain_tensorflow(tmp_path: Path) -> None:
    model = _functional()
    archive = keras.export.ExportArchive()
    archive.track(model)
    specs = {name: tf.type_spec_from_value(value) for name, value in BATCH.items()}
    serving = tf.function(model, input_signature=[specs])
    assert serving.get_concrete_function() is not None  # Keras takes forms other than dense so
    archive.add_endpoint("serve", serving)
    archive.write_out(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    np.testing.assert_allclose(served.serve(BATCH), model(BATCH), rtol=1e-6)
    with raises(tf.errors.InvalidArgumentError, "feature user: ", received="[4]"):
        served.serve({**BATCH, "user": tf.constant([0, 4, 1, 1], "int64")})


def test_it_is_made_again_from_its_config() -> None:
    layer = EmbeddingCollection(
        {"seen": TABLE, "user": Table("users", 4, 2, optimizer=keras.optimizers.Adagrad(0.3))},
        name="mine",
        dtype="mixed_bfloat16",
    )
    again = EmbeddingCollection.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    assert float(again.optimizers["users"].learning_rate) == pytest.approx(0.3)
    assert again({"seen": tf.constant([1])})["seen"].dtype == "bfloat16"


WRONG_TABLES: dict[str, tuple[str, Any, str]] = {
    "no rows": ("vocabulary_size", 0, "whole number"),
    "half a row": ("embedding_dim", 1.5, "whole number"),
    "no name": ("name", "", "without '/'"),
    "a path": ("name", "a/b", "without '/'"),
    "combiner": ("combiner", "max", "'sum', 'mean'"),
}


@pytest.mark.parametrize("case", WRONG_TABLES)
def test_tables_that_cannot_be(case: str) -> None:
    key, value, expected = WRONG_TABLES[case]
    with raises(ConfigError, f"{key}: ", received=repr(value), remedy=expected):
        dataclasses.replace(TABLE, **{key: value})


WRONG_FEATURES: dict[str, tuple[Any, str, str, str]] = {
    "none": ({}, "mine: features", "received {}", "tfps.layers.Table("),
    "a list": ([TABLE], "mine: features", repr([TABLE]), "tfps.layers.Table("),
    "a number": ({"seen": 12}, "mine: feature 'seen'", "received 12", "tfps.layers.Table"),
    "two sizes": (
        {"seen": TABLE, "bought": dataclasses.replace(TABLE, vocabulary_size=8)},
        "mine: features: received 'seen' and 'bought'",
        "'items' with vocabulary_size 7 and 8",
        "the same Table",
    ),
}


@pytest.mark.parametrize("case", WRONG_FEATURES)
def test_features_that_cannot_be(case: str) -> None:
    features, key, received, expected = WRONG_FEATURES[case]
    with raises(ConfigError, key, received=received, remedy=expected):
        EmbeddingCollection(features, name="mine")


def test_two_descriptions_of_one_table_that_agree_are_one() -> None:
    again = dataclasses.replace(TABLE, initializer=keras.initializers.Constant(MATRIX))
    layer = EmbeddingCollection({"seen": TABLE, "bought": again})
    assert len(layer.tables) == 1


def _two_towers() -> keras.Model:
    query = EmbeddingCollection({"query": TABLE}, name="queries")
    title = EmbeddingCollection(
        {"title": dataclasses.replace(TABLE, combiner="sum"), "user": Table("users", 4, WIDTH)},
        shared=query,
        name="titles",
    )
    inputs = {name: keras.Input((2,), name=name, dtype="int64") for name in ("query", "title")}
    rows = [query({"query": inputs["query"]})["query"], title({"title": inputs["title"]})["title"]]
    return keras.Model(inputs, keras.layers.Dot(1)(rows))


def test_two_collections_share_a_table(tmp_path: Path) -> None:
    model = _two_towers()
    names = [weight.path for weight in model.weights]
    assert names == ["queries/items/embeddings", "titles/users/embeddings"]
    model.compile("sgd", "mse")
    batch = {"query": np.array([[1, 2]]), "title": np.array([[2, 5]])}
    model.fit(batch, np.ones([1, 1]), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert len(loaded.weights) == 2
    np.testing.assert_array_equal(loaded.predict(batch, verbose=0), model.predict(batch, verbose=0))


def test_two_collections_of_one_table_with_two_sizes() -> None:
    query = EmbeddingCollection({"query": TABLE}, name="query")
    with raises(
        ConfigError,
        "title: features: received 'query' of query and 'title'",
        received="'items' with embedding_dim 3 and 4",
        remedy="the same Table",
    ):
        EmbeddingCollection(
            {"title": dataclasses.replace(TABLE, embedding_dim=4)}, shared=query, name="title"
        )


TEXTS = tf.constant(["a"])
WRONG_CALLS: dict[str, tuple[Any, Any, str, str]] = {
    "floats": (tf.constant([1.0]), None, "float32", "whole numbers"),
    "texts": (TEXTS, None, "string", "keras.layers.StringLookup"),
    "scalar": (tf.constant(1), None, "ids of rank 0, ()", "combiner=None"),
    "cube": (tf.ones([1, 2, 3], "int64"), None, "ids of rank 3, (1, 2, 3)", "combiner=None"),
    "ragged cube": (tf.ragged.constant([[[1]]]), None, "ragged ids of rank 3", "merge_dims"),
    "sparse cube": (
        tf.sparse.from_dense(tf.ones([1, 2, 3], "int64")),
        None,
        "sparse ids of rank 3",
        "merge_dims",
    ),
    "weights of a vector": (
        tf.constant([[1, 2]]),
        tf.constant([1.0]),
        "Tensor (1,)",
        "Tensor (1, 2)",
    ),
    "dense weights": (
        tf.ragged.constant([[1, 2]]),
        tf.constant([[1.0, 2.0]]),
        "Tensor (1, 2)",
        "RaggedTensor",
    ),
}


@pytest.mark.parametrize("case", WRONG_CALLS)
def test_ids_of_another_form(case: str) -> None:
    ids, weights, received, expected = WRONG_CALLS[case]
    layer = EmbeddingCollection({"seen": TABLE}, name="mine")
    given = None if weights is None else {"seen": weights}
    key = "mine: feature 'seen': " + ("ids" if weights is None else "weights")
    with raises(ConfigError, key, received=received, remedy=expected):
        layer({"seen": ids}, given)


def test_weights_of_other_lengths() -> None:
    layer = EmbeddingCollection({"seen": TABLE}, name="mine")
    ids, weights = tf.ragged.constant([[1, 2], [3]]), tf.ragged.constant([[1.0], [2.0, 3.0]])
    with raises(tf.errors.InvalidArgumentError, "'seen': weights", received="lengths"):
        layer({"seen": ids}, {"seen": weights})


@pytest.mark.parametrize("case", ["Input of floats", "ragged Input"])
def test_a_model_that_cannot_be_is_refused_when_it_is_made(case: str) -> None:
    """The error comes before there is any data."""
    layer = EmbeddingCollection({"seen": TABLE}, name="mine")
    shape, options, received, expected = {
        "Input of floats": ((2,), {}, "float32", "whole numbers"),
        "ragged Input": (
            (None, None),
            {"ragged": True, "dtype": "int64"},
            "ragged ids of",
            "merge_dims",
        ),
    }[case]
    with raises(ConfigError, "mine: feature 'seen'", received=received, remedy=expected):
        layer({"seen": keras.Input(shape, **options)})


def test_unknown_features() -> None:
    layer = EmbeddingCollection({"seen": TABLE, "bought": TABLE}, name="mine")
    ids = tf.constant([1])
    with raises(ConfigError, "ids: ", received="'sen'", remedy="did you mean 'seen'"):
        layer({"sen": ids})
    with raises(ConfigError, "weights: ", received="'bought'", remedy="['seen']"):
        layer({"seen": ids}, {"bought": tf.constant([1.0])})
    with raises(ConfigError, "ids: ", received=type(ids).__name__, remedy="['seen', 'bought']"):
        layer(ids)


@pytest.mark.parametrize("wrong", [ROWS, -1, 1 << 40])
@pytest.mark.parametrize("way", ["eagerly", "traced"])
def test_ids_outside_of_a_table(way: str, wrong: int) -> None:
    """Negative ones too, which `keras.layers.Embedding` counts from the end."""
    layer = EmbeddingCollection({"user": Table("users", 4, 2), "seen": TABLE}, name="mine")
    call = tf.function(layer) if way == "traced" else layer
    ids = {"user": tf.constant([3], "int64"), "seen": tf.constant([1, wrong], "int64")}
    with raises(
        tf.errors.InvalidArgumentError,
        "mine: feature seen: ids for the table items: ",
        received=f"[{wrong}]",
        remedy="expected 0 to 6",
    ):
        call(ids)
