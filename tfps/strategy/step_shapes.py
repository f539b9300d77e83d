"""What a step of a model looks up in tables and hands from layer to layer, by its shapes alone."""

from __future__ import annotations

import math
from typing import Any

import keras


def rows_looked_up(model: Any, *, batch_size: int) -> dict[str, int]:
    """How many rows a step asks for, by the path of each table; at most, since ids may repeat.

    A table that is called several times counts as if it were called once. Those of a model without
    inputs of known shape are left out: how often they are asked is not known.

    Args:
        model: a built model of Keras.
        batch_size: examples of a step.

    Example:

    >>> layers = [keras.Input((4,)), keras.layers.Embedding(100, 8, name="words")]
    >>> rows_looked_up(keras.Sequential(layers, name="small"), batch_size=32)
    {'small/words/embeddings': 128}
    """
    tables = [layer for layer in _layers(model) if isinstance(layer, keras.layers.Embedding)]
    counts = {table.embeddings.path: _elements(table, "input") for table in tables}
    return {path: batch_size * count for path, count in counts.items() if count is not None}


def activation_bytes(model: Any, *, batch_size: int) -> int | None:
    """The most that a layer hands to the next in a step, as float32; None where no shape is known.

    Args:
        model: a built model of Keras.
        batch_size: examples of a step.

    Example:

    >>> layers = [keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(2)]
    >>> activation_bytes(keras.Sequential(layers), batch_size=32)
    1024
    """
    counts = [
        _elements(layer, "output")
        for layer in model.layers
        if not isinstance(layer, keras.layers.InputLayer)
    ]
    known = [count for count in counts if count is not None]
    return 4 * batch_size * max(known) if known else None


def _layers(model: Any) -> list[Any]:
    """All of them, those within layers too."""
    return list(model._flatten_layers(include_self=False))


def _elements(layer: Any, side: str) -> int | None:
    """Of one example in what a layer is given, or answers."""
    try:
        tensor = getattr(layer, side)
    except (AttributeError, ValueError):  # Keras's answers where there is none, or are several
        return None
    shape = getattr(tensor, "shape", None)
    return None if shape is None or None in shape[1:] else math.prod(shape[1:])
