"""Computes from a model's shapes how many rows a step looks up, and the size of activations."""

from __future__ import annotations

import math
from typing import Any

import keras


def count_rows_looked_up(model: Any, *, batch_size: int) -> dict[str, int]:
    """Return the maximum number of rows that a step looks up in each table, by its path.

    A table that is called several times counts as if it were called once. Tables whose input has
    no known shape are left out.

    Args:
        model: a built Keras model.
        batch_size: the number of examples of a step.

    Example:

    >>> layers = [keras.Input((4,)), keras.layers.Embedding(100, 8, name="words")]
    >>> count_rows_looked_up(keras.Sequential(layers, name="small"), batch_size=32)
    {'small/words/embeddings': 128}
    """
    tables = [layer for layer in _all_layers(model) if isinstance(layer, keras.layers.Embedding)]
    counts = {table.embeddings.path: _count_elements(table, "input") for table in tables}
    return {path: batch_size * count for path, count in counts.items() if count is not None}


def largest_activation_bytes(model: Any, *, batch_size: int) -> int | None:
    """Return the bytes of the largest output of a layer in a step, as float32.

    Returns None if no shape is known.

    Args:
        model: a built Keras model.
        batch_size: the number of examples of a step.

    Example:

    >>> layers = [keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(2)]
    >>> largest_activation_bytes(keras.Sequential(layers), batch_size=32)
    1024
    """
    counts = [
        _count_elements(layer, "output")
        for layer in model.layers
        if not isinstance(layer, keras.layers.InputLayer)
    ]
    known = [count for count in counts if count is not None]
    return 4 * batch_size * max(known) if known else None


def _all_layers(model: Any) -> list[Any]:
    """Return all layers, also those within other layers."""
    return list(model._flatten_layers(include_self=False))


def _count_elements(layer: Any, side: str) -> int | None:
    """Return the number of elements of a layer's input or output for one example, or None."""
    try:
        tensor = getattr(layer, side)
    except (AttributeError, ValueError):  # Keras raises these for none, or for several
        return None
    shape = getattr(tensor, "shape", None)
    return None if shape is None or None in shape[1:] else math.prod(shape[1:])
