"""Reads the weights in a Keras 3 file, ``.weights.h5`` or ``.keras``."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import zipfile
from typing import Any

import h5py
import keras
import tensorflow as tf

from tfps.errors import CheckpointError
from tfps.evaluation.checkpoint import Format, UnreadableCheckpoint
from tfps.evaluation.iterations import counter_of

MAX_NAMES_SHOWN = 3
WEIGHTS_IN_MODEL = "model.weights.h5"  # the member of a .keras archive
_MISMATCH = re.compile(
    r"variable\.shape=(?P<model>\(.*?\)), Received: value\.shape=(?P<file>\(.*?\))\. "
    r"Target variable: <\w+ path=(?P<path>\S+?),"
)


def load_keras_file(path: str, model: keras.Model, *, format: Format) -> int | None:  # noqa: A002
    """Load a model's weights without the optimizer's state, and return the optimizer's counter.

    Args:
        path: the file, local or remote.
        model: a model that is built and compiled as in the training.
        format: `Format.WEIGHTS` or `Format.MODEL`.

    Returns:
        The optimizer's counter; None if the file does not contain it.

    Raises:
        UnreadableCheckpoint: the file is deleted or incomplete.
        CheckpointError: the file has weights of another model.
    """
    with tempfile.TemporaryDirectory(prefix="tfps-evaluation-") as folder:
        copy = os.path.join(folder, "copy.weights.h5")
        try:
            _copy_weights(path, copy, format=format)
            with h5py.File(copy, "r") as file:
                count = _read_counter(file, model.optimizer)
            model.load_weights(copy, objects_to_skip=[model.optimizer])
        except (OSError, KeyError, zipfile.BadZipFile, tf.errors.OpError) as error:
            raise UnreadableCheckpoint(f"{type(error).__name__}: {_first_line(error)}") from error
        except ValueError as error:
            raise CheckpointError(
                f"{path} does not fit the model: {_shorten_message(error)}. Build the model as in "
                "the training"
            ) from error
    return count


def _copy_weights(path: str, copy: str, *, format: Format) -> None:  # noqa: A002
    """Copy the weights, since the training could not write a file that HDF5 reads and locks."""
    if format is Format.WEIGHTS:
        tf.io.gfile.copy(path, copy)
        return
    with tf.io.gfile.GFile(path, "rb") as archive, zipfile.ZipFile(archive) as members:
        with members.open(WEIGHTS_IN_MODEL) as source, open(copy, "wb") as target:
            shutil.copyfileobj(source, target)


def _read_counter(file: Any, optimizer: Any) -> int | None:
    """Return the optimizer's counter, which the file stores by its position among the variables."""
    if optimizer is None:
        return None
    counter = counter_of(optimizer)
    position = next(i for i, variable in enumerate(optimizer.variables) if variable is counter)
    value = file.get(f"optimizer/vars/{position}")
    return None if value is None or value.shape else int(value[()])


def _shorten_message(error: ValueError) -> str:
    """Return a short version of Keras's message about shapes, without the values of the weights."""
    different = [
        f"{match['path']} has the shape {match['model']}, and {match['file']} in the checkpoint"
        for match in _MISMATCH.finditer(str(error))
    ]
    return "; ".join(different[:MAX_NAMES_SHOWN]) or " ".join(str(error).split()).rstrip(".")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
