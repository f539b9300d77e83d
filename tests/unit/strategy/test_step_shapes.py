"""The rows and activations of a step, read from the shapes of a model without values."""

from __future__ import annotations

import keras

from tfps.strategy.step_shapes import count_rows_looked_up, largest_activation_bytes

layers = keras.layers


def test_rows_are_those_of_all_ids_of_a_batch() -> None:
    ids = keras.Input((5,), dtype="int32")
    words = layers.Embedding(100, 8, name="words")
    column = layers.Embedding(50, 8, name="column")
    both = layers.Concatenate(axis=1)([words(ids), layers.Reshape((1, 8))(column(ids[:, 0]))])
    model = keras.Model(ids, layers.Dense(2)(layers.Flatten()(both)))
    assert count_rows_looked_up(model, batch_size=4) == {
        words.embeddings.path: 20,
        column.embeddings.path: 4,
    }


def test_of_open_shapes_nothing_is_said() -> None:
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, layers.Embedding(100, 8)(ids))
    assert count_rows_looked_up(model, batch_size=4) == {}


def test_tables_within_a_layer_are_found() -> None:
    inner = keras.Sequential([keras.Input((3,)), layers.Embedding(10, 2)], name="inner")
    model = keras.Sequential([keras.Input((3,)), inner, layers.Flatten(), layers.Dense(1)])
    (rows,) = count_rows_looked_up(model, batch_size=2).values()
    assert rows == 6


def test_the_largest_activation_is_handed_on() -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(16), layers.Dense(2)])
    assert largest_activation_bytes(model, batch_size=8) == 4 * 8 * 16
    open_shapes = keras.Sequential([keras.Input((None, 4)), layers.Dense(16)])
    assert largest_activation_bytes(open_shapes, batch_size=8) is None
