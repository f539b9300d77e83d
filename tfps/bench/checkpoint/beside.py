"""A save while a model of large tables is being trained."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict
from typing import Any

from tfps.bench.checkpoint.measured import Measured
from tfps.bench.checkpoint.ways import BESIDE, SAVE

TABLES, COLUMNS, BATCH = 8, 256, 64
# A save of 3 GB takes 8 s, and 5,000 steps more than half a minute.
STEPS = 5000
STEPS_BEFORE = 50
LOOK_EVERY_STEPS = 10


def measure_beside(
    strategy: Any, measured: Measured, *, mib: int, folder: str
) -> list[dict[str, Any]]:
    """Train until a save is done; answers the sample.

    Args:
        strategy: of the cluster.
        measured: takes the sample.
        mib: of the tables; Adam has twice that besides.
        folder: of the checkpoints.
    """
    import keras
    import numpy as np

    import tfps
    from tfps.checkpoint import KeepLatest

    rows = max(1, mib * 2**20 // TABLES // COLUMNS // 4)
    inputs = keras.Input((TABLES,), dtype="int32")
    with strategy.scope():
        found = [
            keras.layers.Embedding(rows, COLUMNS, embeddings_initializer="ones")(inputs[:, k])
            for k in range(TABLES)
        ]
        model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Add()(found)))
        model.compile(tfps.optimizers.RowUpdates(keras.optimizers.Adam(1e-3)), "mse")
    ids = np.random.default_rng(0).integers(0, rows, size=(STEPS * BATCH, TABLES), dtype="int32")
    targets = np.zeros([len(ids), 1], "float32")
    model.fit(ids[:BATCH], targets[:BATCH], batch_size=BATCH, verbose=0)
    manager = tfps.CheckpointManager(model, folder, keep=KeepLatest(1))
    manager.save(background=False)  # traces

    class Save(keras.callbacks.Callback):
        """After some steps; notes how long each step takes."""

        def __init__(self) -> None:
            super().__init__()
            self.before_s: list[float] = []
            self.after_s: list[float] = []
            self._last_s: float | None = None
            self._first = manager.latest

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            now_s = time.perf_counter()
            if self._last_s is not None:
                durations = self.before_s if batch <= STEPS_BEFORE else self.after_s
                durations.append(now_s - self._last_s)
            self._last_s = now_s
            if batch == STEPS_BEFORE:
                manager.save()
            elif batch % LOOK_EVERY_STEPS == 0 and batch > STEPS_BEFORE:
                manager.check()
                self.model.stop_training = manager.latest != self._first

    save = Save()
    measured.begin()
    model.fit(ids, targets, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[save])
    manager.wait()
    assert manager.last_seconds is not None
    usual_s = statistics.median(save.before_s)
    measured.end(
        BESIDE,
        SAVE,
        seconds=manager.last_seconds,
        pause_s=max(0.0, max(save.after_s) - usual_s),
    )
    manager.close()
    return [asdict(sample) for sample in measured.samples]
