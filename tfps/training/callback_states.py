"""The state of callbacks, so that those of another process go on with it."""

from __future__ import annotations

import logging
import os
import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from tfps.checkpoint.saved_state import split_state
from tfps.errors import CheckpointError

logger = logging.getLogger(__name__)

NOT_THEIRS = frozenset({"params", "_params", "model", "_model", "validation_data"})
NOT_SAVED = (
    "%s changed attributes that tfps.callbacks.Resume does not save, so they begin anew in a "
    "resumed fit. Give the class get_state(), which returns numbers, texts, arrays, and lists and "
    "dictionaries of them, and set_state(state)"
)


class CallbackStates:
    """Reads and writes the states of a `fit`'s callbacks, by the names of their classes.

    The state of a callback of Keras are its attributes that have changed since the training began:
    the others are how the user has set it up. Others have `get_state` and `set_state`.

    Args:
        callbacks: of the `fit`, but for `Resume`.
    """

    def __init__(self, callbacks: Sequence[Any]) -> None:
        counts: Counter[str] = Counter()
        self._named: dict[str, Any] = {}
        for callback in callbacks:
            name = type(callback).__name__
            if hasattr(callback, "get_state") or not type(callback).__module__.startswith("tfps."):
                self._named[f"{name}_{counts[name]}" if counts[name] else name] = callback
                counts[name] += 1
        self._first: dict[str, dict[str, bytes]] = {}
        self._restored: dict[str, set[str]] = {}
        self._warned: set[str] = set()

    def prepare(self, saved: Mapping[str, Any]) -> None:
        """Let files that callbacks write go on where they ended, before the training begins."""
        for name, callback in self._named.items():
            if isinstance(callback, keras.callbacks.CSVLogger) and name in saved:
                callback.append = True
                if os.path.exists(callback.filename):
                    size_bytes = os.path.getsize(callback.filename)
                    os.truncate(callback.filename, min(size_bytes, saved[name]["size_bytes"]))

    def begin(self, saved: Mapping[str, Any]) -> None:
        """Note how the callbacks begin, and then write a state.

        Args:
            saved: what `read` has returned in another process.
        """
        self._first = {
            name: {key: pickle.dumps(value) for key, value in _attributes_of(callback).items()}
            for name, callback in self._named.items()
        }
        for name, state in saved.items():
            if (callback := self._named.get(name)) is None:
                continue
            if hasattr(callback, "set_state"):
                callback.set_state(state)
            elif not isinstance(callback, keras.callbacks.CSVLogger):
                for key, value in state.items():
                    setattr(callback, key, value)
                self._restored[name] = set(state)

    def read(self) -> dict[str, Any]:
        """Return the state of all callbacks that have one."""
        states: dict[str, Any] = {}
        nameless = []
        for name, callback in self._named.items():
            if hasattr(callback, "get_state"):
                states[name] = callback.get_state()
            elif isinstance(callback, keras.callbacks.CSVLogger):
                if not callback.csv_file.closed:  # the end of the training closes it
                    callback.csv_file.flush()
                states[name] = {"size_bytes": os.path.getsize(callback.filename)}
            else:
                first, restored = self._first.get(name, {}), self._restored.get(name, set())
                changed = {
                    key: value
                    for key, value in _attributes_of(callback).items()
                    if key in restored or pickle.dumps(value) != first.get(key)
                }
                if _is_of_keras(callback):
                    states[name] = changed
                elif changed:
                    nameless.append(name)
        new = [name for name in nameless if name not in self._warned]
        if new:
            self._warned.update(new)
            logger.warning(NOT_SAVED, ", ".join(new))
        return states


def _is_of_keras(callback: Any) -> bool:
    """Return whether a callback is one of Keras, or derived from one."""
    kinds = type(callback).__mro__
    return any(
        kind.__module__.startswith("keras.") and kind is not keras.callbacks.Callback
        for kind in kinds
    )


def _attributes_of(callback: Any) -> dict[str, Any]:
    """Return the attributes of a callback that can be saved."""
    found = {}
    for key, value in vars(callback).items():
        if key not in NOT_THEIRS and not isinstance(value, bool):
            try:
                split_state({key: value})
            except CheckpointError:
                continue
            found[key] = value
    return found
