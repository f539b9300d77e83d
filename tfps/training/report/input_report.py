"""Print how data reach the workers, and how long workers waited for data."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from tfps.bridge.keras_private import io_utils
from tfps.consistency.histogram import DURATION_BINS, quantile_seconds

if TYPE_CHECKING:
    from tfps.training.fit_strategy import FitStrategy

logger = logging.getLogger(__name__)

WAIT_KIND = 2  # the histogram of the ledger


class InputReport(keras.callbacks.Callback):
    """Prints how data reach the workers, and at the end how long workers waited for them.

    Args:
        strategy: ours.
    """

    def __init__(self, strategy: FitStrategy) -> None:
        super().__init__()
        self._strategy = strategy
        self._before = np.zeros(DURATION_BINS, np.int64)

    def on_train_begin(self, logs: Any = None) -> None:
        self._before = self._wait_histograms()
        source = self._strategy.run_state.source
        if source is not None:
            self._print_line(f"input: {source.description}")

    def on_train_end(self, logs: Any = None) -> None:
        counts = [int(count) for count in self._wait_histograms() - self._before]
        middle, high = (quantile_seconds(counts, fraction) for fraction in (0.5, 0.99))
        if middle is not None and high is not None:
            self._print_line(
                f"input: workers waited {_milliseconds(middle)} for a batch (median), "
                f"{_milliseconds(high)} at most for 99 % of them"
            )

    def _wait_histograms(self) -> np.ndarray[Any, Any]:
        server = self._strategy.runtime.ticket_server
        begin = server.layout.duration(WAIT_KIND, 0)
        return np.asarray(server.cells()[begin : begin + DURATION_BINS])

    def _print_line(self, line: str) -> None:
        if self.params.get("verbose"):
            io_utils.print_msg(line)
        else:
            logger.info("%s", line)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2g} ms" if seconds < 0.1 else f"{seconds:.1f} s"
