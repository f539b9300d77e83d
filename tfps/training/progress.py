"""The progress bar of a cluster: Keras's own, with the cluster's pace in the place of ms/step."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol

import keras
from keras.src.utils.progbar import Progbar

# Into a log file, one line this often; a terminal's line is redrawn instead.
LOG_INTERVAL_S = 10.0


class Pace(Protocol):
    """What the bar shows of the cluster."""

    def describe_pace(self) -> str:
        """For example ``2/2 workers - staleness 0.9``."""


class ClusterProgbar(Progbar):  # type: ignore[misc]
    """Keras's bar with steps/s, workers alive and staleness.

    Args:
        pace: asked each time that the bar is drawn.
        options: of Keras's bar.
    """

    def __init__(self, pace: Pace, **options: Any) -> None:
        super().__init__(**options)
        self._pace = pace
        self._dynamic_display = sys.stdout.isatty() or "ipykernel" in sys.modules
        if not self._dynamic_display:
            self.interval = LOG_INTERVAL_S
            self._last_update = time.time()

    def _format_time(self, time_per_unit: float, unit_name: str) -> str:
        rate = 1.0 / time_per_unit if time_per_unit > 0 else 0.0
        return f" {rate:.0f} steps/s - {self._pace.describe_pace()}"


class TrainingProgress(keras.callbacks.ProgbarLogger):  # type: ignore[misc]
    """Takes the place of `ProgbarLogger` for models of our strategy; logs and history stay Keras's.

    Args:
        pace: the strategy.
    """

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    def _maybe_init_progbar(self) -> None:
        if self.progbar is None:
            self.progbar = ClusterProgbar(
                self._pace,
                target=self.target,
                verbose=self.verbose,
                unit_name="step",
                stateless_metrics=set(),
            )
