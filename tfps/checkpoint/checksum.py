"""The checksums of a checkpoint's files, and the search for damaged ones.

The checksums form a chain. TensorFlow keeps one of every block of values in the index of the file,
and compares it when it reads the block. The manifest keeps one of every index, the size of every
file, and one of itself. So a restore checks all that it uses, and the chief reads no values for it.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MAX_PROBLEMS_SHOWN = 5
# TensorFlow's file of values under a prefix; their checksums are in the other file, the index.
VALUES_INFIX = ".data-"


@dataclass(frozen=True)
class FileChecksum:
    """The size and the checksum of a file when it was committed.

    Args:
        size_bytes: the size of the file.
        crc32: the checksum of its content; None for values, whose checksums are in the index.
    """

    size_bytes: int
    crc32: int | None

    def __str__(self) -> str:
        return f"{self.size_bytes} bytes" + (
            "" if self.crc32 is None else f" with the checksum {self.crc32:08x}"
        )


def text_checksum(text: str) -> int:
    """Return the checksum of a text.

    Example:

    >>> f"{text_checksum('text'):08x}"
    '3b8ba7c7'
    """
    return zlib.crc32(text.encode())


def file_checksum(path: Path) -> FileChecksum:
    """Return the checksum of a file, or only the size of a file of values."""
    if VALUES_INFIX in path.name:
        return FileChecksum(os.stat(path).st_size, None)
    content = path.read_bytes()
    return FileChecksum(len(content), zlib.crc32(content))


def find_damage(folder: Path, expected: Mapping[str, FileChecksum]) -> list[str]:
    """Return a sentence for each file of a folder that has changed.

    Args:
        folder: the folder of a checkpoint.
        expected: the checksum of each file, by its name.

    Returns:
        A line for each file that differs: what was expected, and what was found.
    """
    problems = []
    for name, wanted in expected.items():
        try:
            found = file_checksum(folder / name)
        except FileNotFoundError:
            problems.append(f"{name} is missing, expected {wanted}")
        except OSError as error:
            problems.append(f"cannot read {name}: {error.strerror}")
        else:
            if found != wanted:
                problems.append(f"{name} has {found}, expected {wanted}")
    more = len(problems) - MAX_PROBLEMS_SHOWN
    return problems[:MAX_PROBLEMS_SHOWN] + ([f"... and {more} more files"] if more > 0 else [])
