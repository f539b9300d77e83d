"""Folders for the logs of tasks: the user's, or a temporary one that a success removes."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from tfps.cluster import ClusterSpec
from tfps.folder import make_folder
from tfps.launch.environment import LOG_FILE
from tfps.launch.output import write_message


class LogFolder:
    """The folder for the logs of tasks: the user's, or a temporary one.

    Args:
        path: the user's folder, which stays; None makes a temporary one.
        prefix: the beginning of the temporary folder's name.
    """

    def __init__(self, path: str | os.PathLike[str] | None, *, prefix: str) -> None:
        self.is_temporary = path is None
        given = Path(tempfile.mkdtemp(prefix=prefix) if path is None else path)
        self.path = make_folder(given, name="log_dir")

    def end(self, *, succeeded: bool) -> None:
        """Remove a temporary folder if the job has succeeded, or if the folder is empty."""
        if self.is_temporary and succeeded:
            shutil.rmtree(self.path, ignore_errors=True)
        elif self.is_temporary:
            with contextlib.suppress(OSError):  # it is not empty, or gone
                self.path.rmdir()

    def __str__(self) -> str:
        return f"{'logs (kept on failure)' if self.is_temporary else 'logs'} in {self.path}"


class TaskLog:
    """The log file for the lines of libraries, in a task whose error output goes elsewhere.

    Args:
        spec: the cluster and this task.
        log_dir: the folder of the file; None is the file that the starter of this process named,
            or one in a temporary folder, whose name is reported.
    """

    def __init__(self, spec: ClusterSpec, log_dir: str | None = None) -> None:
        self._folder: LogFolder | None = None
        if log_dir is None and os.environ.get(LOG_FILE):
            self.path = Path(os.environ[LOG_FILE])
            return
        self._folder = LogFolder(log_dir, prefix="tfps-run-")
        if self._folder.is_temporary:
            write_message(f"{spec.task_type} {spec.task_index}: {self._folder}")
        self.path = self._folder.path / f"{spec.task_type}-{spec.task_index}.log"

    def end(self, status: int) -> None:
        """Remove a temporary folder after a success; called when the last line was written."""
        if self._folder is not None:
            self._folder.end(succeeded=status == 0)
