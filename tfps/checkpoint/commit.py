"""The folder of the checkpoints: a checkpoint is there as a whole or not at all.

It is written into a temporary folder, which gets its name when everything has reached the disk.
What was not committed is never looked at, and goes when somebody saves here again.
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

from tfps.checkpoint.checksum import checksum_of, damage
from tfps.checkpoint.manifest import Manifest
from tfps.checkpoint.retention import Saved
from tfps.errors import CheckpointDamaged, CheckpointError, ConfigError

logger = logging.getLogger(__name__)

MARKER = "manifest.json"
PREFIX, WRITING, DELETED = "checkpoint-", "writing-", "deleted-"
_NAME = re.compile(rf"{PREFIX}(\d+)$")


class Folder:
    """Where a job keeps its checkpoints; it need not exist yet.

    One process writes at a time; any number may read meanwhile.

    Args:
        path: on this machine or mounted there.

    Raises:
        ConfigError: it is no path, a remote one, or that of a file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            text = os.fspath(path)
        except TypeError as error:
            raise ConfigError(
                f"directory: received {path!r}, expected the path of a folder for checkpoints"
            ) from error
        if not text or "://" in text:
            raise ConfigError(
                f"directory: received {text!r}, expected the path of a folder on this machine or "
                "mounted there: a folder of an object store cannot be committed as a whole"
            )
        self.path = Path(os.path.abspath(text))
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"directory: {self.path} is a file, expected a folder")
        self._passed_over: set[int] = set()

    def numbers(self) -> list[int]:
        """The numbers of the committed checkpoints, the oldest first."""
        if not self.path.is_dir():
            return []
        found = (_NAME.match(entry.name) for entry in self.path.iterdir())
        return sorted(int(match[1]) for match in found if match is not None)

    def of(self, number: int) -> Path:
        """The folder of a committed checkpoint."""
        return self.path / f"{PREFIX}{number:06d}"

    def manifest(self, number: int) -> Manifest:
        """Read what a checkpoint holds.

        Raises:
            CheckpointDamaged: its manifest is not what was written.
            CheckpointError: there is none of this number, or it is of another format.
        """
        folder = self.of(number)
        if not folder.is_dir():
            known = ", ".join(map(str, self.numbers())) or "none"
            raise CheckpointError(f"{self.path} has no checkpoint {number!r}; it has {known}")
        try:
            manifest = Manifest.from_json((folder / MARKER).read_text())
        except CheckpointError as error:
            raise type(error)(f"{folder}: {error}") from error
        except FileNotFoundError as error:
            raise CheckpointDamaged(f"{folder}: {MARKER} is missing") from error
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointDamaged(f"{folder}: {MARKER} cannot be read: {error}") from error
        if manifest.number != number:
            raise CheckpointDamaged(
                f"{folder}: {MARKER} is that of checkpoint {manifest.number}, expected {number}"
            )
        return manifest

    def verify(self, manifest: Manifest) -> None:
        """Compare the files of a checkpoint with their checksums, without reading the values.

        Raises:
            CheckpointDamaged: some differ; each of them, up to a few.
        """
        folder = self.of(manifest.number)
        problems = damage(folder, manifest.checksums)
        if problems:
            raise CheckpointDamaged(f"{folder}: {', '.join(problems)}")

    def pass_over(self, lines: Mapping[int, str]) -> None:
        """Warn of checkpoints that were found damaged, and count them no more.

        Args:
            lines: what to say of each, by its number.
        """
        for line in lines.values():
            logger.warning("%s", line)
        self._passed_over |= lines.keys()

    def sound(self) -> list[Saved]:
        """The checkpoints that nobody has found damaged, the oldest first.

        Nobody knows what the others are, so they are left alone.
        """
        sound = []
        for number in self.numbers():
            if number not in self._passed_over:
                try:
                    manifest = self.manifest(number)
                    self.verify(manifest)
                except CheckpointError as error:
                    self.pass_over({number: str(error)})
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
        """Give a temporary folder its name, once all that it holds is on the disk."""
        sums = {entry.name: checksum_of(entry) for entry in sorted(temporary.iterdir())}
        whole = dataclasses.replace(manifest, checksums=sums)
        (temporary / MARKER).write_text(whole.to_json())
        for entry in temporary.iterdir():
            _to_disk(entry)
        _to_disk(temporary)
        final = self.of(manifest.number)
        os.rename(temporary, final)
        _to_disk(self.path)
        return final

    def delete(self, number: int) -> None:
        """Delete a checkpoint; whatever happens meanwhile, half of one is never taken for one."""
        gone = self.path / f"{DELETED}{number:06d}-{secrets.token_hex(4)}"
        os.rename(self.of(number), gone)
        _to_disk(self.path)
        shutil.rmtree(gone)

    def clean(self) -> list[str]:
        """Delete what crashed while it was written or deleted; answers the names."""
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


def _to_disk(path: Path) -> None:
    """Also of a folder: only then are the names in it there after a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
