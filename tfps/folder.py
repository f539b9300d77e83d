"""Checks the folders that a command writes to, before anything starts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tfps.errors import ConfigError


def folder_problem(path: Path, *, name: str) -> str | None:
    """Return why a folder cannot be written to, or None if it can. Writes nothing.

    Args:
        path: the folder, which need not exist.
        name: the option or the key that it comes from, for the message.
    """
    existing = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not existing.is_dir():
        return _folder_problem_text(path, f"{existing} is a file", name=name)
    if not os.access(existing, os.W_OK | os.X_OK):
        return _folder_problem_text(path, f"cannot write to {existing}", name=name)
    return None


def make_folder(path: Path, *, name: str) -> Path:
    """Make a folder unless it exists, and return it.

    Args:
        path: the folder.
        name: the option or the key that it comes from, for the message.

    Raises:
        ConfigError: the folder cannot be written to.
    """
    problem = folder_problem(path, name=name)
    if problem is None:
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):  # what permissions say is not all
                pass
        except OSError as error:
            problem = _folder_problem_text(path, error.strerror or str(error), name=name)
    if problem is not None:
        raise ConfigError(problem)
    return path


def _folder_problem_text(path: Path, reason: str, *, name: str) -> str:
    return f"{name}: received {str(path)!r}: {reason}, expected a folder to write to"
