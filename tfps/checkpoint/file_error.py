"""Errors that a file causes, apart from those of a server that is lost."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from tfps.errors import CheckpointNotSaved

logger = logging.getLogger(__name__)

# What TensorFlow makes of an operating system's error, where it can mean nothing else here.
ALWAYS = (
    tf.errors.DataLossError,
    tf.errors.OutOfRangeError,  # a file that ends early, or may not become so large
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,  # no space
)
# What TensorFlow says of resources and functions as well.
WITH_PATH = (
    tf.errors.FailedPreconditionError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.UnknownError,  # an error of the device that holds the files
)


def file_error(
    error: BaseException, path: str | os.PathLike[str]
) -> OSError | tf.errors.OpError | None:
    """The error of a file that is behind an error, or None where there is no such thing.

    Args:
        error: also that of a line, which says that a server has answered no value.
        path: of the file, or of the folder that it lies in.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, (OSError, *ALWAYS)):
            return seen
        if isinstance(seen, WITH_PATH) and os.fspath(path) in seen.message:
            return seen
        seen = seen.__cause__
    return None


def reason_of(error: OSError | tf.errors.OpError) -> str:
    """What to say of it, in one line."""
    if isinstance(error, OSError):
        return str(error)
    lines = [line.strip() for line in error.message.splitlines() if line.strip()]
    # A session says first which line of Python has made the operation, then the reason, and below
    # one of a full disk what to do when memory is full.
    said = [line for line in lines if not line.startswith(("[[", "Hint: "))]
    return said[-1] if said else type(error).__name__


@contextlib.contextmanager
def writing_into(folder: Path) -> Iterator[None]:
    """Say what it means that a file cannot be written; also in the log, if nobody asks.

    Args:
        folder: of all checkpoints.

    Raises:
        CheckpointNotSaved: in the place of what said so.
    """
    try:
        yield
    except Exception as error:
        reason = file_error(error, folder)
        if reason is None:
            raise
        said = (
            f"a checkpoint could not be saved in {folder}: {reason_of(reason)}. Those that were "
            "saved before are as they were. Make room there, or let the chief and the servers that "
            "share the folder write into it"
        )
        logger.error("%s", said)
        raise CheckpointNotSaved(said) from error
