"""`ByTable`: which optimizer updates what, in one process, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.messages import check_message, raises
from tfps.errors import ConfigError
from tfps.optimizers import DANA, ByTable, SparseUpdates
from tfps.optimizers.wrapped import get_leaf_optimizers

TABLES = ("a", "b", "c")
IDS = [np.arange(8).reshape(4, 2)] * len(TABLES)


def _model(optimizer: Any) -> keras.Model:
    """Three tables and a layer."""
    inputs = [keras.Input((2,), dtype="int64") for _ in TABLES]
    layers = [keras.layers.Embedding(8, 2, name=name) for name in TABLES]
    rows = [layer(ids) for layer, ids in zip(layers, inputs, strict=True)]
    flat = keras.layers.Flatten()(keras.layers.Concatenate()(rows))
    model = keras.Model(inputs, keras.layers.Dense(1)(flat))
    model.compile(optimizer, "mse")
    return model


def _trained_by(model: keras.Model) -> dict[str, list[str]]:
    return {
        f"{type(leaf).__name__} {float(leaf.learning_rate.numpy()):.3f}": [
            variable.path for variable in leaf._trainable_variables
        ]
        for leaf in get_leaf_optimizers(model.optimizer)
    }


EXPECTED = {
    "Adagrad 0.500": ["a/embeddings", "c/embeddings"],
    "SGD 0.250": ["b/embeddings"],
    "Adam 0.001": ["dense/kernel", "dense/bias"],
}


def test_each_table_has_its_own(tmp_path: Path) -> None:
    """Tables with the same optimizer object share it, also after the model was saved."""
    keras.backend.clear_session()
    of_two = keras.optimizers.Adagrad(0.5)
    own = SparseUpdates(keras.optimizers.SGD(0.25))
    model = _model(ByTable({"a": of_two, "b": own, "c": of_two}, "adam"))
    before = model.get_weights()
    model.fit(IDS, np.ones([4, 1]), verbose=0)
    assert _trained_by(model) == EXPECTED
    assert own in model.optimizer.optimizers
    for old, new in zip(before, model.get_weights(), strict=True):
        assert not np.array_equal(old, new)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(loaded.optimizer, ByTable)
    assert _trained_by(loaded) == EXPECTED
    assert len(loaded.optimizer.variables) == len(model.optimizer.variables)
    for one, other in zip(loaded.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_tables_with_one_text_share_an_optimizer() -> None:
    optimizer = ByTable({"a": "adagrad", "b": "sgd", "c": "adagrad"}, keras.optimizers.Lamb())
    assert [type(leaf).__name__ for leaf in get_leaf_optimizers(optimizer)] == [
        "Adagrad",
        "SGD",
        "Lamb",
    ]


def test_optimizers_without_row_updates_are_refused_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        ByTable(
            {"a": keras.optimizers.Lamb(), "b": "adam", "c": DANA(), "d": "adamm", "e": 3},
            "no such optimizer",
        )
    first, second, third, fourth, last = raised.value.problems
    check_message(first, "a: optimizer: ", received="Lamb", remedy="keras.optimizers.Adagrad")
    check_message(second, "c: optimizer: ", received="DANA", remedy="StalenessAware")
    check_message(third, "d: ", received="'adamm'", remedy="'adagrad'")
    check_message(fourth, "e: ", received=3, remedy="'adagrad'")
    check_message(last, "otherwise: ", received="'no such optimizer'", remedy="'adagrad'")
    assert raised.value.source == "ByTable"


def test_a_table_that_is_not_trained() -> None:
    """Found before the first step."""
    model = _model(ByTable({"a": "sgd", "user": "adagrad"}))
    with raises(ConfigError, "ByTable: tables", received="['user']", remedy="['a', 'b'"):
        model.optimizer.build(model.trainable_variables)
