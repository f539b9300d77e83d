"""Finds the checkpoints among the files of a folder and their order; without TensorFlow."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass

_INDEX = ".index"
_DATA = re.compile(r"\.data-(\d{5})-of-(\d{5})$")
_NUMBER = re.compile(r"-(\d+)$")


class Format(enum.Enum):
    """The format of a checkpoint; the value describes the names of its files."""

    TENSORFLOW = "NAME.index with NAME.data-... (tf.train.Checkpoint)"
    WEIGHTS = "NAME.weights.h5 (ModelCheckpoint, save_weights_only=True)"
    MODEL = "NAME.keras (ModelCheckpoint)"


_ENDINGS = {".weights.h5": Format.WEIGHTS, ".keras": Format.MODEL}


class UnreadableCheckpoint(Exception):
    """The checkpoint is incomplete, deleted or damaged; it may be readable a moment later."""


@dataclass(frozen=True, kw_only=True)
class File:
    """The name, size and time of change of a file in a folder.

    Args:
        name: the name without the folder.
        changed_ns: the time of its last change, in nanoseconds.
        size_bytes: its size.
    """

    name: str
    changed_ns: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class CheckpointFile:
    """One state of a checkpoint; after an overwrite, it is another value.

    Args:
        name: the name of the file, or the common prefix of its files.
        format: its format.
        changed_ns: the time of its last change, in nanoseconds.
        size_bytes: the size of the file that is written last.
    """

    name: str
    format: Format
    changed_ns: int
    size_bytes: int

    @property
    def recency(self) -> tuple[int, tuple[tuple[int, str], ...], str, int]:
        """A key that is larger for newer checkpoints; for equal times, numbers in the names decide.

        Names with the same numbers, such as ``ckpt-1`` and ``ckpt-01``, are ordered as well.
        """
        return self.changed_ns, _natural_sort_key(self.name), self.name, self.size_bytes

    @property
    def number(self) -> int | None:
        """The number at the end of the checkpoint's name, as in ``ckpt-12``, or None.

        Example:

        >>> values = {"format": Format.WEIGHTS, "changed_ns": 0, "size_bytes": 0}
        >>> CheckpointFile(name="epoch-12.weights.h5", **values).number
        12
        """
        match = _NUMBER.search(_remove_ending(self.name))
        return int(match[1]) if match else None


def checkpoints_among(files: Iterable[File]) -> list[CheckpointFile]:
    """Return the complete checkpoints among the files of a folder, the newest first.

    A TensorFlow checkpoint is complete if its index and all of its data files exist.
    """
    files = list(files)
    parts: dict[str, set[int]] = {}
    for file in files:
        if match := _DATA.search(file.name):
            whole = f"{file.name[: match.start()]}-of-{match[2]}"
            parts.setdefault(whole, set()).add(int(match[1]))
    complete = {
        whole.rpartition("-of-")[0]
        for whole, numbers in parts.items()
        if len(numbers) == int(whole.rpartition("-of-")[2])
    }
    checkpoints = []
    for file in files:
        name, format_ = file.name, _find_format(file.name)
        if name.endswith(_INDEX) and name.removesuffix(_INDEX) in complete:
            name, format_ = name.removesuffix(_INDEX), Format.TENSORFLOW
        if format_ is not None:
            checkpoints.append(
                CheckpointFile(
                    name=name,
                    format=format_,
                    changed_ns=file.changed_ns,
                    size_bytes=file.size_bytes,
                )
            )
    return sorted(checkpoints, key=lambda checkpoint: checkpoint.recency, reverse=True)


def _find_format(name: str) -> Format | None:
    for ending, format_ in _ENDINGS.items():
        if name.endswith(ending):
            return format_
    return None


def _remove_ending(name: str) -> str:
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name


def _natural_sort_key(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts ``ckpt-9`` before ``ckpt-10``."""
    parts = re.split(r"(\d+)", name)
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)
