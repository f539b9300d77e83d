"""Errors that a file causes, apart from those of a server that is lost."""

from __future__ import annotations

import os

import tensorflow as tf

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
    # A session says first which line of Python has made the operation, and the reason at the end.
    said = [line for line in lines if not line.startswith("[[")]
    return said[-1] if said else type(error).__name__
