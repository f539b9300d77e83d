"""A save that runs in the background."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import shutil
import threading
import time
from pathlib import Path

import tensorflow as tf

from tfps.checkpoint.commit import Folder
from tfps.checkpoint.file_error import writing_into
from tfps.checkpoint.manifest import Manifest
from tfps.checkpoint.retention import RetentionPolicy, superfluous
from tfps.checkpoint.snapshot import Snapshot
from tfps.errors import CheckpointNotSaved

logger = logging.getLogger(__name__)


class BackgroundSave:
    """Writes a snapshot, commits it, and deletes checkpoints that need not stay.

    A script that ends meanwhile waits for it.

    Args:
        snapshot: the snapshot, taken before; freed at the end in any case.
        manifest: the manifest, without the files.
        folder: the folder of the checkpoints.
        keep: the policy of the checkpoints that stay.
    """

    def __init__(
        self, snapshot: Snapshot, manifest: Manifest, *, folder: Folder, keep: RetentionPolicy
    ) -> None:
        self._snapshot, self._manifest, self._folder = snapshot, manifest, folder
        self._keep = keep
        self._began_s = time.monotonic()
        self._error: BaseException | None = None
        self.seconds: float | None = None  # set when it is committed
        self._thread = threading.Thread(target=self._run, name="tfps checkpoint")
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether it has ended, well or not."""
        return not self._thread.is_alive()

    def join(self) -> None:
        """Wait for the end, without raising its error."""
        self._thread.join()

    def wait(self) -> None:
        """Wait for the end.

        Raises:
            tf.errors.UnavailableError: a parameter server was lost meanwhile.
            CheckpointNotSaved: a file could not be written.
            Exception: any other error of the save.
        """
        self.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        number, path = self._manifest.number, self._folder.path
        try:
            with writing_into(path):
                self._write()
        except CheckpointNotSaved as error:
            self._error = error
        except BaseException as error:  # noqa: BLE001 - raised by `wait`
            # Also log it at once: a script may end without a call of `wait`.
            logger.error("cannot save checkpoint %d in %s: %s", number, path, error)
            self._error = error
        else:
            self._delete_old()
        finally:
            with contextlib.suppress(tf.errors.OpError):  # the first error is the one to report
                self._snapshot.free()

    def _write(self) -> None:
        folder, number = self._folder, self._manifest.number
        temporary = folder.begin(number)
        try:
            files = self._snapshot.write(temporary)
            manifest = dataclasses.replace(self._manifest, files=files)
            folder.commit(temporary, manifest)
            self.seconds = time.monotonic() - self._began_s
        except BaseException:
            _forget(temporary)
            raise

    def _delete_old(self) -> None:
        """Delete old checkpoints; a failure is only a warning, since the new one is saved."""
        try:
            self._delete_superfluous()
        except OSError as error:
            logger.warning(
                "checkpoint %d is saved, but old checkpoints in %s cannot be deleted: %s; the next "
                "save tries again",
                self._manifest.number,
                self._folder.path,
                error,
            )

    def _delete_superfluous(self) -> None:
        for number in superfluous(self._folder.sound(), self._keep):
            self._folder.delete(number)


def _forget(temporary: Path) -> None:
    """Delete a temporary folder now, and not at the begin of the next save."""
    shutil.rmtree(temporary, ignore_errors=True)
