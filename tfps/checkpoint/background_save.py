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
from tfps.checkpoint.file_error import translate_write_errors
from tfps.checkpoint.manifest import Manifest
from tfps.checkpoint.retention import RetentionPolicy, find_superfluous
from tfps.checkpoint.saved_state import Arrays, write_arrays
from tfps.checkpoint.snapshot import Snapshot
from tfps.errors import CheckpointNotSaved

logger = logging.getLogger(__name__)


class BackgroundSave:
    """Writes a snapshot, commits it, and deletes checkpoints that need not stay.

    A script that ends meanwhile waits for it.

    Args:
        snapshot: the snapshot, taken before; freed at the end in any case.
        manifest: the manifest, without the files.
        arrays: the arrays of the manifest's state.
        folder: the folder of the checkpoints.
        keep: the policy of the checkpoints that stay.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        manifest: Manifest,
        *,
        arrays: Arrays,
        folder: Folder,
        keep: RetentionPolicy,
    ) -> None:
        self._snapshot, self._manifest, self._folder = snapshot, manifest, folder
        self._arrays, self._keep = arrays, keep
        self._began_s = time.monotonic()
        self._error: BaseException | None = None
        self.seconds: float | None = None  # set when it is committed
        self._thread = threading.Thread(target=self._run, name="tfps checkpoint")
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether the save has ended, with or without an error."""
        return not self._thread.is_alive()

    def join(self) -> None:
        """Wait for the end of the save, without raising its error."""
        self._thread.join()

    def wait(self) -> None:
        """Wait for the end of the save.

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
            with translate_write_errors(path):
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
            write_arrays(self._arrays, temporary)
            manifest = dataclasses.replace(self._manifest, files=files)
            folder.commit(temporary, manifest)
            self.seconds = time.monotonic() - self._began_s
        except BaseException:
            _delete_temporary(temporary)
            raise

    def _delete_old(self) -> None:
        """Delete old checkpoints; a failure is only a warning, since the new one is saved."""
        try:
            self._apply_retention()
        except OSError as error:
            logger.warning(
                "checkpoint %d is saved, but old checkpoints in %s cannot be deleted: %s; the next "
                "save tries again",
                self._manifest.number,
                self._folder.path,
                error,
            )

    def _apply_retention(self) -> None:
        for number in find_superfluous(self._folder.undamaged_checkpoints(), self._keep):
            self._folder.delete(number)


def _delete_temporary(temporary: Path) -> None:
    """Delete the temporary folder of a failed save."""
    shutil.rmtree(temporary, ignore_errors=True)
