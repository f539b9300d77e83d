"""Checks that Keras runs on TensorFlow, which tfps needs. Imports neither."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

from tfps.errors import BackendError
from tfps.tested_versions import format_known_range


def chosen_backend() -> tuple[str, str]:
    """Return the backend that Keras uses or will use, and where it was set."""
    keras = sys.modules.get("keras")
    if keras is not None and hasattr(keras, "config"):
        return str(keras.config.backend()), "Keras is imported with it already"
    if os.environ.get("KERAS_BACKEND"):
        return os.environ["KERAS_BACKEND"], "the environment variable KERAS_BACKEND"
    home = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras").expanduser()
    file = home / "keras.json"
    if file.is_file():
        try:
            backend = json.loads(file.read_text()).get("backend", "tensorflow")
        except ValueError:
            return "tensorflow", "Keras ignores a keras.json that is no JSON"
        return str(backend), f"the key 'backend' in {file}"
    return "tensorflow", "Keras's default"


def check_backend() -> None:
    """Raise an error if Keras uses another backend, or if TensorFlow is not installed.

    Raises:
        BackendError: another backend is chosen; names it, where it was set and how to change it.
            Or no TensorFlow is installed.
    """
    backend, where = chosen_backend()
    if backend != "tensorflow":
        raise BackendError(
            f"backend: received {backend!r}, set by {where}, expected 'tensorflow'; set "
            "KERAS_BACKEND=tensorflow in the environment before you import keras"
        )
    if "tensorflow" not in sys.modules and importlib.util.find_spec("tensorflow") is None:
        raise BackendError(
            "tensorflow: received no installation, expected TensorFlow "
            f"{format_known_range('tensorflow')}; pip install 'tfps[tensorflow]', or a build such "
            "as tensorflow-cpu"
        )
