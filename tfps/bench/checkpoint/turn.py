"""What the chief of one turn of `tfps bench checkpoint` does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfps.bench.checkpoint.beside import measure_beside
from tfps.bench.checkpoint.measured import Measured
from tfps.bench.checkpoint.ways import BESIDE, RESTORE, SAVE, STREAMED, TENSORFLOW, TFPS

VARIABLES, COLUMNS = 8, 256


@dataclass(frozen=True)
class CheckpointOrder:
    """What a chief process is to measure.

    Args:
        mib: of the model's weights; Adam has twice that besides.
        folder: of the checkpoint of tfps; it stays for other turns.
        ways: keys of `WAYS`, to save and restore in, in this order; none: only restore.
        servers: the process numbers of the servers.
    """

    mib: int
    folder: str
    ways: Sequence[str]
    servers: Sequence[int]


def measure(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Save and restore as ordered; answers the samples."""
    import tfps

    order = CheckpointOrder(**fields)
    strategy = tfps.ParameterServerStrategy(placement="round_robin")
    if BESIDE in order.ways:
        return measure_beside(
            strategy, Measured(order.servers), mib=order.mib, folder=f"{order.folder}/beside"
        )
    model = _trained(strategy, order, steps=2 if order.ways else 1)
    measured = Measured(order.servers)
    folder = Path(order.folder)
    if not order.ways:
        manager = tfps.CheckpointManager(model, folder)
        with measured.sample(TFPS, RESTORE, lambda: None):
            manager.restore_latest()
        _check(model, 2)
        return [asdict(sample) for sample in measured.samples]
    for way in order.ways:
        to = folder if way == TFPS else folder / way
        if way == TENSORFLOW:
            _measure_tensorflow(model, measured, to)
        else:
            _measure_ours(model, measured, to, way)
        _check(model, 2)
    for way in (STREAMED, TENSORFLOW):
        shutil.rmtree(folder / way)
    return [asdict(sample) for sample in measured.samples]


def _measure_ours(model: Any, measured: Measured, folder: Path, way: str) -> None:
    import tfps
    from tfps.checkpoint import KeepLatest

    shared = False if way == STREAMED else None
    manager = tfps.CheckpointManager(model, folder, keep=KeepLatest(2), shared=shared)
    manager.save(background=False)  # traces
    with measured.sample(way, SAVE, lambda: manager.last_pause_s):
        manager.save(background=False)
    with measured.sample(way, RESTORE, lambda: None):
        manager.restore_latest()
    manager.close()


def _measure_tensorflow(model: Any, measured: Measured, folder: Path) -> None:
    import tensorflow as tf

    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    checkpoint.write(str(folder / "first"))
    with measured.sample(TENSORFLOW, SAVE, lambda: None):
        path = checkpoint.write(str(folder / "second"))
        # As tfps does before it counts a checkpoint as saved.
        for file in folder.glob("second*"):
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
    with measured.sample(TENSORFLOW, RESTORE, lambda: None):
        checkpoint.read(path).assert_existing_objects_matched()


def _trained(strategy: Any, order: CheckpointOrder, *, steps: int) -> Any:
    """A model of some variables, with all of its slots, after some updates."""
    import keras
    import numpy as np

    rows = max(1, order.mib * 2**20 // VARIABLES // COLUMNS // 4)

    class Weights(keras.layers.Layer):
        def build(self, input_shape: Any) -> None:
            shape = (rows, COLUMNS)
            self.parts = [
                self.add_weight(shape=shape, initializer="ones", name=f"part_{number}")
                for number in range(VARIABLES)
            ]

        def call(self, inputs: Any) -> Any:
            return 0.0 * inputs + sum(keras.ops.mean(part[:1]) for part in self.parts)

    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), Weights()])
        model.compile(keras.optimizers.Adam(1e-3), "mse")
    data = np.zeros([steps, 1], "float32")
    model.fit(data, data, batch_size=1, verbose=0)
    return model


def _check(model: Any, updates: int) -> None:
    found = int(model.optimizer.iterations)
    if found != updates:
        raise RuntimeError(f"restored {found} updates, expected {updates}")
