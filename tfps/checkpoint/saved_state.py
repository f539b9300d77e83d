"""The state that a checkpoint holds beside its variables: JSON, and arrays in a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.errors import CheckpointError

FILE = "state.npz"
_KEY = "array"  # of a mapping that stands for an array of the file

Arrays = Mapping[str, np.ndarray[Any, Any]]


def split_state(state: Mapping[str, Any]) -> tuple[dict[str, Any], Arrays]:
    """Return a state as JSON, and the arrays that it refers to by their numbers.

    Args:
        state: of mappings, sequences, arrays, and values that JSON has.

    Raises:
        CheckpointError: something else is in it.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}

    def convert(value: Any, place: str) -> Any:
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {key: convert(each, f"{place}.{key}") for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [convert(each, place) for each in value]
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, tf.Tensor):
            value = value.numpy()
        if isinstance(value, np.ndarray) and value.dtype != object:
            arrays[str(len(arrays))] = np.array(value)  # the owner may change it meanwhile
            return {_KEY: str(len(arrays) - 1)}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise CheckpointError(
            f"state{place}: received {type(value).__name__}, expected numbers, texts, arrays, and "
            "lists and dictionaries of them"
        )

    return {key: convert(value, f".{key}") for key, value in state.items()}, arrays


def write_arrays(arrays: Arrays, folder: Path) -> None:
    """Write the arrays of a state into the folder of a checkpoint, if there are any."""
    if arrays:
        np.savez(folder / FILE, **arrays)  # type: ignore[arg-type]


def read_state(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a state from its JSON and the folder of its checkpoint."""
    stored = dict(np.load(folder / FILE)) if (folder / FILE).exists() else {}

    def join(value: Any) -> Any:
        if isinstance(value, list):
            return [join(each) for each in value]
        if not isinstance(value, Mapping):
            return value
        if value.keys() == {_KEY}:
            return stored[value[_KEY]]
        return {key: join(each) for key, each in value.items()}

    return {key: join(value) for key, value in values.items()}
