"""A folder of checkpoints on a local or remote file system that TensorFlow supports."""

from __future__ import annotations

import os

import tensorflow as tf

from tfps.errors import ConfigError
from tfps.evaluation.checkpoint import CheckpointFile, File, Format, checkpoints_among

MAX_NAMES_SHOWN = 3


class CheckpointFolder:
    """The folder to which the training job writes its checkpoints; it need not exist yet.

    Args:
        path: a path, local or of a file system that TensorFlow supports (``gs://...``).

    Raises:
        ConfigError: the value is no path, or the path of a file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            self.path = os.fspath(path)
        except TypeError as error:
            raise ConfigError(
                f"checkpoint_dir: received {path!r}, expected the folder in which the training job "
                "saves checkpoints"
            ) from error
        if tf.io.gfile.exists(self.path) and not tf.io.gfile.isdir(self.path):
            raise ConfigError(f"checkpoint_dir: received the file {self.path}, expected its folder")

    def path_of(self, checkpoint: CheckpointFile) -> str:
        """Return the path with which to open a checkpoint."""
        return os.path.join(self.path, checkpoint.name)

    def checkpoints(self) -> list[CheckpointFile]:
        """Return the complete checkpoints in the folder now, the newest first."""
        return checkpoints_among(self._list_files())

    def is_unchanged(self, checkpoint: CheckpointFile) -> bool:
        """Return whether a checkpoint is unchanged: neither deleted nor overwritten."""
        return checkpoint in self.checkpoints()

    def has_replaced(self, checkpoint: CheckpointFile) -> bool:
        """Return whether a checkpoint was overwritten since it was found."""
        return any(
            other.name == checkpoint.name and other != checkpoint for other in self.checkpoints()
        )

    def describe_contents(self) -> str:
        """Return a text that explains why no checkpoint was found."""
        names = [file.name for file in self._list_files()]
        expected = ", ".join(format_.value for format_ in Format)
        if not tf.io.gfile.isdir(self.path):
            return f"{self.path} does not exist (the first save of the training creates it)"
        if not names:
            return f"{self.path} is empty"
        shown = ", ".join(sorted(names)[:MAX_NAMES_SHOWN]) + (
            ", ..." * (len(names) > MAX_NAMES_SHOWN)
        )
        return f"{self.path} has no complete checkpoint, only {shown}; expected {expected}"

    def _list_files(self) -> list[File]:
        try:
            names = tf.io.gfile.listdir(self.path)
        except tf.errors.NotFoundError:
            return []
        return [file for name in names if (file := self._read_file(name)) is not None]

    def _read_file(self, name: str) -> File | None:
        path = os.path.join(self.path, name)
        try:
            if "://" not in path:  # TensorFlow has a resolution of a second only
                local = os.stat(path)
                return File(name=name, changed_ns=local.st_mtime_ns, size_bytes=local.st_size)
            remote = tf.io.gfile.stat(path)
        except (FileNotFoundError, tf.errors.NotFoundError):  # deleted since it was listed
            return None
        return File(name=name, changed_ns=remote.mtime_nsec, size_bytes=remote.length)
