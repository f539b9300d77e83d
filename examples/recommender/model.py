"""The deep learning recommendation model (DLRM): plain Keras 3, nothing about parameter servers.

Source: Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation
Systems", 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from recommender.settings import NUMBERS


@keras.saving.register_keras_serializable("recommender")
class DotInteraction(keras.layers.Layer):
    """The dot products of all pairs of some vectors of one width.

    Example:

    >>> DotInteraction()([keras.ops.ones((1, 4)), keras.ops.ones((1, 4)) * 2])
    <tf.Tensor: shape=(1, 1), dtype=float32, numpy=array([[8.]], dtype=float32)>
    """

    def call(self, vectors: Sequence[Any]) -> Any:
        """Give the part of the products below the diagonal."""
        stacked = keras.ops.stack(vectors, axis=1)
        products = keras.ops.matmul(stacked, keras.ops.transpose(stacked, (0, 2, 1)))
        count = len(vectors)
        below = [row * count + column for row in range(count) for column in range(row)]
        return keras.ops.take(keras.ops.reshape(products, (-1, count * count)), below, axis=1)

    def compute_output_shape(self, shapes: Sequence[Any]) -> tuple[Any, int]:
        """One number for each pair."""
        return shapes[0][0], len(shapes) * (len(shapes) - 1) // 2


def dlrm(
    *,
    table_rows: Sequence[int],
    embedding_width: int,
    bottom_units: Sequence[int],
    top_units: Sequence[int],
) -> keras.Model:
    """Numbers go through the bottom layers, ids through tables; their products go to the top.

    It returns logits.

    Args:
        table_rows: rows of the table of each categorical feature.
        embedding_width: numbers of each row.
        bottom_units: the widths of the layers before the products, but for the last one, which is
            that of the embeddings.
        top_units: the widths of the layers behind the products.
    """
    dense = keras.Input((NUMBERS,), name="numbers")
    ids = keras.Input((len(table_rows),), dtype="int32", name="ids")
    bottom = dense
    for units in (*bottom_units, embedding_width):
        bottom = keras.layers.Dense(units, activation="relu")(bottom)
    rows = [
        keras.layers.Embedding(count, embedding_width, name=f"C{number + 1}")(ids[:, number])
        for number, count in enumerate(table_rows)
    ]
    top = keras.layers.Concatenate()([bottom, *rows, DotInteraction()([bottom, *rows])])
    for units in top_units:
        top = keras.layers.Dense(units, activation="relu")(top)
    logits = keras.layers.Dense(1)(top)
    return keras.Model({"numbers": dense, "ids": ids}, logits, name="dlrm")
