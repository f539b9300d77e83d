"""Registers classes in Keras, also under the names that files of earlier versions have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import keras

PACKAGE = "tfps"
# Names that saved models of version 0.1 have, and the classes that are meant.
EARLIER_NAMES: Mapping[str, str] = {
    "RowUpdates": "SparseUpdates",
    "ScaledRate": "ScaledLearningRate",
}

C = TypeVar("C", bound=type)


def register_class(kind: C) -> C:
    """Register a class in Keras for saving and loading models.

    Files have its present name from now on; those that have an earlier one load as well.
    """
    keras.saving.register_keras_serializable(PACKAGE)(kind)
    for earlier, name in EARLIER_NAMES.items():
        if name == kind.__name__:
            keras.saving.get_custom_objects()[f"{PACKAGE}>{earlier}"] = kind
    return kind
