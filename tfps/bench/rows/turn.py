"""What the chief of one turn of `tfps bench rows` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tfps.bench.usage import EpochClock

WIDTH = 64
IDS_PER_EXAMPLE = 10


@dataclass(frozen=True)
class RowsOrder:
    """What a chief process is to measure.

    Args:
        optimizer: a key of `OPTIMIZERS`.
        mib: size of the table.
        by_rows: whether the optimizer is in `RowUpdates`.
        steps: of one epoch.
        epochs: measured ones; a warm-up epoch precedes them.
        batch_size: examples in a step.
        groups: the cluster's process numbers by role.
    """

    optimizer: str
    mib: int
    by_rows: bool
    steps: int
    epochs: int
    batch_size: int
    groups: Mapping[str, Sequence[int]]

    @property
    def rows(self) -> int:
        """Of the table, in float32."""
        return (self.mib << 20) // (4 * WIDTH)


def measure(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Train as ordered; answers the samples and which way the steps took."""
    import keras
    import numpy as np

    import tfps

    order = RowsOrder(**fields)
    strategy = tfps.ParameterServerStrategy()
    with strategy.scope():
        optimizer: Any = keras.optimizers.get(order.optimizer)
        if order.by_rows:
            optimizer = tfps.optimizers.RowUpdates(optimizer)
        model = keras.Sequential(
            [
                keras.Input((IDS_PER_EXAMPLE,), dtype="int32"),
                keras.layers.Embedding(order.rows, WIDTH),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(optimizer, "mse")
    every = [number for numbers in order.groups.values() for number in numbers]
    clock = EpochClock(every, order.groups)

    class RowsMeasure(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            clock.begin()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            clock.end(order.steps)

    examples = order.steps * order.batch_size
    ids = np.random.default_rng(0).integers(0, order.rows, (examples, IDS_PER_EXAMPLE), np.int32)
    model.fit(
        ids,
        np.ones(examples, np.float32),
        batch_size=order.batch_size,
        epochs=1 + order.epochs,
        verbose=0,
        callbacks=[RowsMeasure()],
    )
    stats = strategy.stats()
    samples = [asdict(sample) for sample in clock.samples[1:]]  # the first one traces
    details = {"fallback_steps": stats.fallback_steps, "carriers": stats.carriers}
    return {"samples": samples, "details": details}
