"""The checkpoints that `tfps.Recovery` has `fit` save."""

from __future__ import annotations

from typing import Any

from tfps.checkpoint.callback import Checkpoint


class RecoveryCheckpoints(Checkpoint):
    """Saves when training begins as well: a server may be lost before the first steps are done."""

    def on_train_begin(self, logs: Any = None) -> None:
        self._look(lambda: self._save(logs))
