"""The private names of Keras that tfps uses: the only way to ``keras.src``.

Names are those of `private_places.KERAS`. Small functions here do what versions do differently.
"""

from __future__ import annotations

from typing import Any

import keras

from tfps.bridge.private_names import find_names
from tfps.bridge.private_places import KERAS
from tfps.errors import UnsupportedError

_names = find_names("keras")


def refuse_missing_class(feature: str, *, needs: str) -> None:
    """Raise an error if the installed Keras lacks a class that a feature of tfps needs.

    Args:
        feature: the feature of tfps, as users write it.
        needs: a key of `private_places.KERAS.features`.

    Raises:
        UnsupportedError: this Keras does not have the class.
    """
    if needs not in _names:
        raise UnsupportedError(
            f"{feature} needs {KERAS.features[needs]}, which Keras {keras.__version__} does not "
            f"have. Install a newer one: pip install 'keras=={KERAS.tested[0]}'"
        )


def get_h5_dataset(store: Any, key: str) -> Any:
    """Return a dataset of a weights file, after the checks that the installed Keras makes."""
    checked = getattr(_names["saving_lib"], "safe_get_h5_dataset", None)
    if checked is not None:
        return checked(store._h5_entry_group, key)
    dataset = store._h5_entry_group[key]
    verify = getattr(store, "_verify_dataset", None)  # of some patch releases of 3.12 and 3.13
    return dataset if verify is None else verify(dataset)


def get_fan_axes(initializer: Any) -> dict[str, Any]:
    """Return the axes arguments of a `VarianceScaling`; empty if this Keras has none."""
    names = ("input_axes", "output_axes")
    return {name: getattr(initializer, name) for name in names if hasattr(initializer, name)}


def find_optimizers(*names: str) -> frozenset[type]:
    """Return the optimizer classes with these names that the installed Keras has."""
    known = keras.optimizers
    return frozenset(getattr(known, name) for name in names if hasattr(known, name))


def get_global_generator() -> Any:
    """Return Keras's global seed generator; None if nothing was drawn without a seed."""
    key = getattr(_names["seed_generator"], "GLOBAL_SEED_GENERATOR", "global_seed_generator")
    return _names["global_state"].get_global_attribute(key)


def begin_at_epoch(model: Any, epoch: int | None) -> None:
    """Let `fit` begin at an epoch, as `BackupAndRestore` does; None: as its arguments say."""
    model._initial_epoch = epoch


def refuse_slots_in_dictionary(optimizer: Any) -> None:
    """Raise an error for an optimizer that keeps slots in a dictionary, as Muon in Keras 3.12.

    Raises:
        UnsupportedError: the keys are paths of variables, which variables on servers do not have.
    """
    if isinstance(getattr(optimizer, "adam_momentums", None), dict):
        raise UnsupportedError(
            f"keras.optimizers.{type(optimizer).__name__} of Keras {keras.__version__} finds its "
            "slots by the paths of variables, which variables on servers do not have. Install a "
            f"newer Keras: pip install 'keras=={KERAS.tested[0]}'"
        )


def _make_absent_class(name: str) -> type:
    """Return a class without instances, for `isinstance`, as a base class and to patch."""

    def refuse(self: Any, *_: Any, **__: Any) -> None:
        refuse_missing_class(type(self).__name__, needs=name)

    return type(name, (keras.optimizers.Optimizer,), {"__init__": refuse, "apply": refuse})


globals().update({name: _make_absent_class(name) for name in KERAS.features}, **_names)


def __getattr__(name: str) -> Any:  # for type checkers: names of the table are set above
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
