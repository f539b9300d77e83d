"""Registers classes in Keras, also under the names that files of earlier versions have."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, TypeVar

import keras

from tfps.errors import UnsupportedError

PACKAGE = "tfps"
# Names that saved models of version 0.1 have, and the classes that are meant.
EARLIER_NAMES: Mapping[str, str] = {
    "RowUpdates": "SparseUpdates",
    "ScaledRate": "ScaledLearningRate",
}
# Classes of version 0.1 that a program may load without importing their present package.
MOVED_TO: Mapping[str, str] = {"ScaledRate": "tfps.schedules"}
# Classes of earlier versions that are gone, and the classes to use instead.
REPLACEMENTS: Mapping[str, str] = {
    "AdaptiveRevision": "tfps.optimizers.DANA",
    "DelayCompensated": "tfps.optimizers.DANA",
    "GapAware": "tfps.optimizers.DANA",
    "Inverse": "tfps.optimizers.StalenessAware with discount='exponential'",
    "InversePlusOne": "tfps.optimizers.StalenessAware with discount='exponential'",
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


class _EarlierClass:
    """A class of an earlier version, which Keras finds by its registered name and then loads.

    Args:
        name: the name without the package.
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def from_config(self, config: dict[str, Any]) -> Any:
        """Load the present class.

        Raises:
            UnsupportedError: the class was removed; names the one to use.
        """
        if self.__name__ in REPLACEMENTS:
            raise UnsupportedError(
                f"{PACKAGE}>{self.__name__}: received a saved model with this class, which this "
                "version does not have; load the model with compile=False, and compile it with "
                f"{REPLACEMENTS[self.__name__]}"
            )
        package = importlib.import_module(MOVED_TO[self.__name__])
        return getattr(package, EARLIER_NAMES[self.__name__]).from_config(config)


for _name in (*MOVED_TO, *REPLACEMENTS):
    keras.saving.get_custom_objects()[f"{PACKAGE}>{_name}"] = _EarlierClass(_name)
