"""Distinguish errors of files from errors of lost servers."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from tfps.errors import CheckpointNotSaved

logger = logging.getLogger(__name__)

# TensorFlow's forms of an operating system's error that have no other meaning here.
FILE_ERRORS = (
    tf.errors.DataLossError,
    tf.errors.OutOfRangeError,  # a file ends early, or may not become so large
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,  # no space
)
# TensorFlow raises these for resources and functions as well.
FILE_ERRORS_WITH_PATH = (
    tf.errors.FailedPreconditionError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.UnknownError,  # an error of the device that holds the files
)


def file_error(
    error: BaseException, path: str | os.PathLike[str]
) -> OSError | tf.errors.OpError | None:
    """Return the file error that caused an error, or None if no file caused it.

    Args:
        error: may be that of a channel, which says that a server has not replied.
        path: the path of the file, or of its folder.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, (OSError, *FILE_ERRORS)):
            return seen
        if isinstance(seen, FILE_ERRORS_WITH_PATH) and os.fspath(path) in seen.message:
            return seen
        seen = seen.__cause__
    return None


def short_reason(error: OSError | tf.errors.OpError) -> str:
    """Return the reason of an error in one line."""
    if isinstance(error, OSError):
        return str(error)
    lines = [line.strip() for line in error.message.splitlines() if line.strip()]
    # A session first names the line of Python that made the operation, then the reason. After that
    # of a full disk it adds a hint about full memory.
    reasons = [line for line in lines if not line.startswith(("[[", "Hint: "))]
    return reasons[-1] if reasons else type(error).__name__


@contextlib.contextmanager
def translate_write_errors(folder: Path) -> Iterator[None]:
    """Raise and log `CheckpointNotSaved` if a file cannot be written within the context.

    Args:
        folder: the folder of all checkpoints.

    Raises:
        CheckpointNotSaved: instead of the error of the file.
    """
    try:
        yield
    except Exception as error:
        reason = file_error(error, folder)
        if reason is None:
            raise
        message = (
            f"cannot save a checkpoint in {folder}: {short_reason(reason)}. Earlier checkpoints "
            "are unchanged. Free space there, or let the chief and the servers that share the "
            "folder write into it"
        )
        logger.error("%s", message)
        raise CheckpointNotSaved(message) from error
