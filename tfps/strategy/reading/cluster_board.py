"""`tfps.callbacks.ClusterBoard`: writes what the cluster did in each epoch for TensorBoard."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from tfps.errors import ConfigError, refuse
from tfps.observe.cluster_warning import mean_growth, mean_staleness

logger = logging.getLogger(__name__)


class ClusterBoard(keras.callbacks.Callback):
    """Writes rates, times, bytes, staleness and pace of each epoch of `fit` for TensorBoard.

    The curves appear beside those of `keras.callbacks.TensorBoard`, under ``cluster/``. With
    ``in_logs`` the same numbers are in Keras's logs, so that `History`, `CSVLogger` and the
    callbacks of Weights & Biases or MLflow that come after this one have them.

    Args:
        log_dir: the folder of the event files; None writes none.
        in_logs: whether to add the numbers to the logs of each epoch, as ``cluster/NAME``.

    Raises:
        ConfigError: neither a folder nor the logs would get the numbers, or another strategy trains
            the model.

    Example:

    ```python
    model.fit(x, y, callbacks=[ClusterBoard("logs"), keras.callbacks.TensorBoard("logs")])
    ```
    """

    def __init__(
        self, log_dir: str | os.PathLike[str] | None = None, *, in_logs: bool = False
    ) -> None:
        super().__init__()
        if log_dir is None and not in_logs:
            refuse(["log_dir: received None without in_logs, expected a folder or in_logs=True"])
        self._log_dir, self._in_logs = log_dir, in_logs
        self._writer: Any = None
        self._has_failed = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin to count."""
        self._strategy = self.model.distribute_strategy
        if not getattr(self._strategy, "_is_tfps_strategy", False):
            raise ConfigError(
                "ClusterBoard: received a model of another strategy or of none, expected one made "
                "in the scope of a tfps.ParameterServerStrategy; make it there, or remove the "
                "callback"
            )
        self._before = dataclasses.asdict(self._strategy.stats())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Write the numbers of the epoch."""
        try:
            after = dataclasses.asdict(self._strategy.stats())
            numbers = compute_scalars(self._before, after)
            self._before = after
            self._write(numbers, epoch)
        except (OSError, tf.errors.OpError) as error:
            if not self._has_failed:
                logger.warning("ClusterBoard: the numbers of some epochs are missing: %s", error)
            self._has_failed = True
            return
        if self._in_logs and logs is not None:
            logs.update(numbers)

    def _write(self, numbers: Mapping[str, float], epoch: int) -> None:
        if self._log_dir is None:
            return
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(os.path.join(self._log_dir, "cluster"))
        with self._writer.as_default():
            for name, number in numbers.items():
                tf.summary.scalar(name, number, step=epoch)
        self._writer.flush()


def compute_scalars(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, float]:
    """Return what happened between two snapshots, by name; what was not measured is left out.

    Args:
        before: the fields of the earlier statistics.
        after: the fields of the later ones.
    """
    counts = Counter(after["gradient_staleness_updates"])
    counts.subtract(before["gradient_staleness_updates"])
    numbers: dict[str, float | None] = {
        "staleness": mean_staleness({"gradient_staleness_updates": counts}),
        "steps_per_s": None if after["steps_per_s"] is None else sum(after["steps_per_s"]),
    }
    for name in ("updates_applied", "bytes_pulled", "bytes_pushed"):
        numbers[name] = after[name] - before[name]
    for name in ("pull_seconds", "push_seconds", "update_seconds", "wait_seconds"):
        numbers[name] = mean_growth(before[name], after[name]) or None
    for worker, seconds in enumerate(after["worker_step_seconds"]):
        numbers[f"step_seconds_worker_{worker}"] = seconds
    for index, server in enumerate(after["servers"]):
        for name in ("bytes_per_s", "updates_per_s"):
            numbers[f"{name}_ps_{index}"] = server[name]
    return {f"cluster/{name}": float(x) for name, x in numbers.items() if x is not None}
