"""Find out which parameter servers see a folder of checkpoints."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfps.checkpoint.commit import MARKER, WRITING, Folder
from tfps.checkpoint.file_channel import FileChannel
from tfps.checkpoint.servers import find_servers_that_see
from tfps.errors import ConfigError


@dataclass(frozen=True)
class SharedFolder:
    """Finds out which parameter servers see the checkpoints in a folder.

    Args:
        folder: the folder, as this process names it.
        is_shared: True if all servers must see it, False if none is asked, None to find out.
    """

    folder: Folder
    is_shared: bool | None

    def is_seen_by(
        self, channels: Sequence[FileChannel], *, checkpoint: Path | None = None
    ) -> list[bool]:
        """Return for each server whether it sees the folder.

        Args:
            channels: the channels to the servers.
            checkpoint: a checkpoint in the folder, for a look that writes nothing; None for a look
                at a file that is written for it.

        Raises:
            ConfigError: a server that must see the folder does not.
        """
        if self.is_shared is False or not channels:
            return [False] * len(channels)
        if checkpoint is None:
            seen = self._probe(channels)
        else:
            marker = checkpoint / MARKER
            seen = find_servers_that_see(marker, marker.read_bytes(), channels=channels)
        blind = [f"ps {index}" for index, sees in enumerate(seen) if not sees]
        if self.is_shared and blind:
            raise ConfigError(
                f"shared: received True, but {', '.join(blind)} do not see the files that this "
                f"process writes into {self.folder.path}. Use a folder that all machines mount, or "
                "leave `shared` out to send the parts through this process",
                source="tfps.CheckpointManager",
            )
        return seen

    def _probe(self, channels: Sequence[FileChannel]) -> list[bool]:
        self.folder.path.mkdir(parents=True, exist_ok=True)
        token = secrets.token_hex(16)
        probe = self.folder.path / f"{WRITING}probe-{token[:8]}"
        probe.write_text(token)
        try:
            return find_servers_that_see(probe, token.encode(), channels=channels)
        finally:
            probe.unlink()
