"""Trace the snapshot of a model once, for all saves."""

from __future__ import annotations

from typing import Any

from tfps.checkpoint.contents import Contents, find_contents
from tfps.checkpoint.names import named_variables
from tfps.checkpoint.servers import open_channels, server_devices_of, strategy_of
from tfps.checkpoint.shared_folder import SharedFolder
from tfps.checkpoint.snapshot import Snapshot


class ModelSnapshot:
    """Keeps the traced snapshot of a model, and traces it again when a variable has moved.

    Args:
        model: a built Keras model.
        folder: the folder of its checkpoints.
    """

    def __init__(self, model: Any, folder: SharedFolder) -> None:
        self._model, self._folder = model, folder
        self._current: tuple[Any, Contents, Snapshot] | None = None
        self._seen: list[bool] | None = None

    def current(self) -> tuple[Contents, Snapshot]:
        """Return the places of the variables, and the snapshot that can be taken of them.

        Raises:
            ConfigError: a server that must see the folder does not.
        """
        strategy = strategy_of(self._model)
        contents = find_contents(named_variables(self._model), servers=server_devices_of(strategy))
        key = (id(strategy), contents.places)
        if self._current is None or self._current[0] != key:
            servers = [] if strategy is None else strategy.runtime.servers
            if self._seen is None or len(self._seen) != len(servers):
                with open_channels(servers) as channels:
                    self._seen = self._folder.is_seen_by(channels)
            self.close()
            snapshot = Snapshot(contents, servers=servers, shared=self._seen)
            self._current = (key, contents, snapshot)
        return contents, self._current[2]

    def close(self) -> None:
        """Close the channels of the snapshot to the servers."""
        if self._current is not None:
            self._current[2].close()
            self._current = None
