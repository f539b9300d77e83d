"""What each file of a checkpoint must look like, and what of it is damaged.

Sums hang together like a chain. TensorFlow keeps one of every block of values beside it, in the
index of the file, and compares it with what it reads. The manifest keeps one of every index and the
size of everything, and one of itself. So a restore checks all that it uses, and the chief reads no
values for it.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROBLEMS_SHOWN = 5
# Of what TensorFlow writes under a prefix: the values, whose sums are in the other file, the index.
VALUES = ".data-"


@dataclass(frozen=True)
class Checksum:
    """What a file was when it was committed.

    Args:
        size_bytes: of the file.
        crc32: of all that is in it; None of values, whose sums are in the index.
    """

    size_bytes: int
    crc32: int | None

    def __str__(self) -> str:
        return f"{self.size_bytes} bytes" + (
            "" if self.crc32 is None else f" with the checksum {self.crc32:08x}"
        )


def text_checksum(text: str) -> int:
    """The checksum of a text.

    Example:

    >>> f"{text_checksum('text'):08x}"
    '3b8ba7c7'
    """
    return zlib.crc32(text.encode())


def checksum_of(path: Path) -> Checksum:
    """Look at a file; of values only at their size."""
    if VALUES in path.name:
        return Checksum(os.stat(path).st_size, None)
    content = path.read_bytes()
    return Checksum(len(content), zlib.crc32(content))


def damage(folder: Path, expected: Mapping[str, Checksum]) -> list[str]:
    """What of the files of a folder is not as it was.

    Args:
        folder: of a checkpoint.
        expected: of each file, by its name.

    Returns:
        A line for each file that differs: what was expected, and what was found.
    """
    problems = []
    for name, wanted in expected.items():
        try:
            found = checksum_of(folder / name)
        except FileNotFoundError:
            problems.append(f"{name} is missing, expected {wanted}")
        except OSError as error:
            problems.append(f"{name} cannot be read: {error.strerror}")
        else:
            if found != wanted:
                problems.append(f"{name} has {found}, expected {wanted}")
    more = len(problems) - PROBLEMS_SHOWN
    return problems[:PROBLEMS_SHOWN] + ([f"... and {more} more files"] if more > 0 else [])
