"""Folders that a command writes to, looked at before anything starts."""

from __future__ import annotations

import os
from pathlib import Path

from tfps.errors import ConfigError


def folder_problem(path: Path, *, name: str) -> str | None:
    """Say why a folder cannot be written to; None: nothing speaks against it. Writes nothing.

    Args:
        path: of the folder, which need not exist.
        name: of the option or the key that it comes from.
    """
    existing = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not existing.is_dir():
        return _sentence(path, f"{existing} is a file", name=name)
    if not os.access(existing, os.W_OK | os.X_OK):
        return _sentence(path, f"{existing} cannot be written to", name=name)
    return None


def make_folder(path: Path, *, name: str) -> Path:
    """Make a folder unless it is there, and return it.

    Args:
        path: of the folder.
        name: of the option or the key that it comes from.

    Raises:
        ConfigError: nothing can be written there.
    """
    problem = folder_problem(path, name=name)
    if problem is None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = _sentence(path, error.strerror or str(error), name=name)
    if problem is not None:
        raise ConfigError(problem)
    return path


def _sentence(path: Path, reason: str, *, name: str) -> str:
    return f"{name}: received {str(path)!r}: {reason}; expected a folder to write to"
