"""The folder of the checkpoints, in which a checkpoint exists as a whole or not at all.

It is written into a temporary folder, which gets its final name when everything has reached the
disk. Uncommitted folders are never read, and the next save deletes them.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from tfps.checkpoint.checksum import file_checksum, find_damage
from tfps.checkpoint.manifest import Manifest
from tfps.checkpoint.retention import SavedCheckpoint
from tfps.errors import CheckpointDamaged, CheckpointError, ConfigError

logger = logging.getLogger(__name__)

MARKER = "manifest.json"
PREFIX, WRITING, DELETED = "checkpoint-", "writing-", "deleted-"
_NAME = re.compile(rf"{PREFIX}(\d+)$")


class Folder:
    """The folder of a job's checkpoints; it need not exist yet.

    One process writes at a time; any number may read meanwhile.

    Args:
        path: a path on this machine or mounted there.

    Raises:
        ConfigError: it is no path, a remote one, or that of a file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            text = os.fspath(path)
        except TypeError as error:
            raise ConfigError(
                f"directory: received {path!r}, expected the path of a folder"
            ) from error
        if not text or "://" in text:
            raise ConfigError(
                f"directory: received {text!r}, expected a local or mounted folder; object stores "
                "cannot commit a folder as a whole"
            )
        self.path = Path(os.path.abspath(text))
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"directory: received the file {self.path}, expected a folder")
        self._damaged_numbers: set[int] = set()

    def numbers(self) -> list[int]:
        """Return the numbers of the committed checkpoints, the oldest first."""
        if not self.path.is_dir():
            return []
        matches = (_NAME.match(entry.name) for entry in self.path.iterdir())
        return sorted(int(match[1]) for match in matches if match is not None)

    def checkpoint_path(self, number: int) -> Path:
        """Return the folder of a committed checkpoint."""
        return self.path / f"{PREFIX}{number:06d}"

    def manifest(self, number: int) -> Manifest:
        """Read the manifest of a checkpoint.

        Raises:
            CheckpointDamaged: its manifest has changed since it was written.
            CheckpointError: there is no checkpoint of this number, or it is of another format.
        """
        folder = self.checkpoint_path(number)
        if not folder.is_dir():
            known = ", ".join(map(str, self.numbers())) or "none"
            raise CheckpointError(
                f"{self.path}: received checkpoint {number!r}, expected one of {known}"
            )
        try:
            manifest = Manifest.from_json((folder / MARKER).read_text())
        except CheckpointError as error:
            raise type(error)(f"{folder}: {error}") from error
        except FileNotFoundError as error:
            raise CheckpointDamaged(f"{folder}: {MARKER} is missing") from error
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointDamaged(f"{folder}: cannot read {MARKER}: {error}") from error
        if manifest.number != number:
            raise CheckpointDamaged(
                f"{folder}: {MARKER} is that of checkpoint {manifest.number}, expected {number}"
            )
        return manifest

    def verify(self, manifest: Manifest) -> None:
        """Compare the files of a checkpoint with their checksums, without reading the values.

        Raises:
            CheckpointDamaged: files differ; the message names the first few.
        """
        folder = self.checkpoint_path(manifest.number)
        problems = find_damage(folder, manifest.checksums)
        if problems:
            raise CheckpointDamaged(f"{folder}: {', '.join(problems)}")

    def exclude_damaged(self, lines: Mapping[int, str]) -> None:
        """Warn of damaged checkpoints, and exclude them from now on.

        Args:
            lines: the warning for each of them, by its number.
        """
        for line in lines.values():
            logger.warning("%s", line)
        self._damaged_numbers |= lines.keys()

    def undamaged_checkpoints(self) -> list[SavedCheckpoint]:
        """Return the checkpoints that are not known to be damaged, the oldest first.

        Damaged ones stay in the folder, since their content is not known.
        """
        sound = []
        for number in self.numbers():
            if number not in self._damaged_numbers:
                try:
                    manifest = self.manifest(number)
                    self.verify(manifest)
                except CheckpointError as error:
                    self.exclude_damaged({number: str(error)})
                else:
                    sound.append(manifest.saved)
        return sound

    def begin(self, number: int) -> Path:
        """Make the temporary folder of a checkpoint."""
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self.path / f"{WRITING}{number:06d}-{secrets.token_hex(4)}"
        temporary.mkdir()
        return temporary

    def commit(self, temporary: Path, manifest: Manifest) -> Path:
        """Give a temporary folder its final name, when all its files are on the disk."""
        sums = {entry.name: file_checksum(entry) for entry in sorted(temporary.iterdir())}
        whole = dataclasses.replace(manifest, checksums=sums)
        (temporary / MARKER).write_text(whole.to_json())
        for entry in temporary.iterdir():
            _flush_to_disk(entry)
        _flush_to_disk(temporary)
        final = self.checkpoint_path(manifest.number)
        os.rename(temporary, final)
        _flush_to_disk(self.path)
        return final

    def delete(self, number: int) -> None:
        """Delete a checkpoint; if this is interrupted, the rest does not count as a checkpoint."""
        renamed = self.path / f"{DELETED}{number:06d}-{secrets.token_hex(4)}"
        os.rename(self.checkpoint_path(number), renamed)
        _flush_to_disk(self.path)
        shutil.rmtree(renamed)

    def clean(self) -> list[str]:
        """Delete the remains of interrupted writes and deletions. Returns their names."""
        if not self.path.is_dir():
            return []
        left = sorted(
            entry.name for entry in self.path.iterdir() if entry.name.startswith((WRITING, DELETED))
        )
        for name in left:
            entry = self.path / name
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        return left


def _flush_to_disk(path: Path) -> None:
    """Flush a file or a folder to the disk, so that names in a folder survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
