"""Checks the folders that a command writes to, before anything starts."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

from tfps.errors import ConfigError

_held: dict[Path, int] = {}  # the folders that this process holds, with their descriptors


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


def hold_folder(path: Path, *, name: str) -> None:
    """Make a folder unless it exists, and keep other processes from holding it until this one ends.

    Args:
        path: the folder.
        name: the option or the key that it comes from, for the message.

    Raises:
        ConfigError: the folder cannot be written to, or another process holds it.
    """
    path = make_folder(path.resolve(), name=name)
    number = _held.get(path) or os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if isinstance(error, BlockingIOError):  # else a file system without locks
            os.close(number)
            text = f"{name}: received {str(path)!r}, where a living job saves"
            raise ConfigError(f"{text}, expected the end of that job or another folder") from None
    _held[path] = number


def _folder_problem_text(path: Path, reason: str, *, name: str) -> str:
    return f"{name}: received {str(path)!r}: {reason}, expected a folder to write to"
