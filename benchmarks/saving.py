"""Saves and restores in a chief process: seconds, pauses and memory of each.

One way after the other on a cluster, or a save while a model of large tables is being trained.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

import tfps
from benchmarks.usage import peak_mib

TFPS, STREAMED, TENSORFLOW, BESIDE = "tfps", "streamed", "tensorflow", "beside"
SAVE, RESTORE = "save", "restore"

VARIABLES, COLUMNS = 8, 256
# Beside training: a save of 3 GB takes 8 s, and 5,000 steps more than half a minute.
BATCH = 64
STEPS = 5000
STEPS_BEFORE = 50
LOOK_EVERY_STEPS = 10


class SavingSampler:
    """Takes samples of the chief and of the servers, whose process numbers it gets."""

    def __init__(self, servers: Sequence[int]) -> None:
        self._groups = {"chief_mib": [os.getpid()], "server_mib": servers}
        self.samples: list[dict[str, Any]] = []

    @contextmanager
    def sample(self, way: str, what: str) -> Iterator[dict[str, Any]]:
        """Measure what is inside; training rests for all of it, unless it notes another pause."""
        os.sync()  # what was written before must not have to be waited for
        before = {name: list(map(_reset_peak_mib, group)) for name, group in self._groups.items()}
        noted: dict[str, Any] = {}
        begin = time.perf_counter()
        yield noted
        seconds = time.perf_counter() - begin
        growths_mib = {
            name: max(
                peak_mib(process) - mib for process, mib in zip(group, before[name], strict=True)
            )
            for name, group in self._groups.items()
        }
        found = {"way": way, "what": what, "seconds": seconds, "pause_s": seconds}
        self.samples.append(found | growths_mib | noted)


def _reset_peak_mib(process: int) -> float:
    """Forget the most memory that a process has had, and say how much it has now."""
    Path(f"/proc/{process}/clear_refs").write_text("5")
    return float(psutil.Process(process).memory_info().rss / 2**20)


def measure_saving(
    mib: int, folder: Path, ways: Sequence[str], *, servers: Sequence[int]
) -> list[dict[str, Any]]:
    """Save and restore in some ways, in this order, and return a sample of each.

    Adam has twice the weights' MiB besides. Without a way it only restores: the checkpoint of tfps
    stays in its folder for other turns.
    """
    strategy = tfps.ParameterServerStrategy(placement="round_robin")
    measured = SavingSampler(servers)
    rows = table_rows(mib)
    if BESIDE in ways:
        _measure_beside(strategy, measured, rows=rows, folder=folder / "beside")
        return measured.samples
    model = _trained(strategy, rows, steps=2 if ways else 1)
    if not ways:
        manager = tfps.CheckpointManager(model, folder)
        with measured.sample(TFPS, RESTORE):
            manager.restore_latest()
        _check(model)
        return measured.samples
    for way in ways:
        to = folder if way == TFPS else folder / way
        if way == TENSORFLOW:
            _measure_tensorflow(model, measured, to)
        else:
            _measure_ours(model, measured, to, way)
        _check(model)
    for way in (STREAMED, TENSORFLOW):
        shutil.rmtree(folder / way)
    return measured.samples


def table_rows(mib: int) -> int:
    """Return the rows of each variable of a model of `mib` MiB."""
    return max(1, mib * 2**20 // VARIABLES // COLUMNS // 4)


def _measure_ours(model: Any, measured: SavingSampler, folder: Path, way: str) -> None:
    from tfps.checkpoint import KeepLatest

    shared = False if way == STREAMED else None
    manager = tfps.CheckpointManager(model, folder, keep=KeepLatest(2), shared=shared)
    manager.save(background=False)  # traces
    with measured.sample(way, SAVE) as noted:
        manager.save(background=False)
        noted["pause_s"] = manager.last_pause_s
    with measured.sample(way, RESTORE):
        manager.restore_latest()
    manager.close()


def _measure_tensorflow(model: Any, measured: SavingSampler, folder: Path) -> None:
    import tensorflow as tf

    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    checkpoint.write(str(folder / "first"))
    with measured.sample(TENSORFLOW, SAVE):
        path = checkpoint.write(str(folder / "second"))
        # As tfps does before it counts a checkpoint as saved.
        for file in folder.glob("second*"):
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
    with measured.sample(TENSORFLOW, RESTORE):
        checkpoint.read(path).assert_existing_objects_matched()


def _trained(strategy: Any, rows: int, *, steps: int) -> Any:
    """Return a model of some variables, with all of its slots, after some updates."""
    import keras
    import numpy as np

    class Weights(keras.layers.Layer):
        def build(self, input_shape: Any) -> None:
            options = {"shape": (rows, COLUMNS), "initializer": "ones"}
            names = [f"part_{number}" for number in range(VARIABLES)]
            self.parts = [self.add_weight(name=name, **options) for name in names]

        def call(self, inputs: Any) -> Any:
            return 0.0 * inputs + sum(keras.ops.mean(part[:1]) for part in self.parts)

    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), Weights()])
        model.compile(keras.optimizers.Adam(1e-3), "mse")
    data = np.zeros([steps, 1], "float32")
    model.fit(data, data, batch_size=1, verbose=0)
    return model


def _check(model: Any) -> None:
    found = int(model.optimizer.iterations)
    if found != 2:
        raise RuntimeError(f"restored {found} updates, expected 2")


def table_model(strategy: Any, rows: int, *, steps: int) -> tuple[Any, Any, Any]:
    """Make a model of tables with `rows` rows that `SparseUpdates` trains, and data for `fit`."""
    import keras
    import numpy as np

    inputs = keras.Input((VARIABLES,), dtype="int32")
    with strategy.scope():
        found = [
            keras.layers.Embedding(rows, COLUMNS, embeddings_initializer="ones")(inputs[:, k])
            for k in range(VARIABLES)
        ]
        model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Add()(found)))
        model.compile(tfps.optimizers.SparseUpdates(keras.optimizers.Adam(1e-3)), "mse")
    ids = np.random.default_rng(0).integers(0, rows, size=(steps * BATCH, VARIABLES), dtype="int32")
    return model, ids, np.zeros([len(ids), 1], "float32")


def _measure_beside(strategy: Any, measured: SavingSampler, *, rows: int, folder: Path) -> None:
    """Save while tables of `rows` rows are trained."""
    import keras
    import numpy as np

    from tfps.checkpoint import KeepLatest

    model, ids, targets = table_model(strategy, rows, steps=STEPS)
    model.fit(ids[:BATCH], targets[:BATCH], batch_size=BATCH, verbose=0)
    manager = tfps.CheckpointManager(model, folder, keep=KeepLatest(1))
    manager.save(background=False)  # traces

    class SaveCallback(keras.callbacks.Callback):
        """After some steps; notes when each step ends."""

        def __init__(self) -> None:
            super().__init__()
            self.ends_s: list[float] = []
            self._first = manager.latest

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.ends_s.append(time.perf_counter())
            if batch == STEPS_BEFORE:
                manager.save()
            elif batch % LOOK_EVERY_STEPS == 0 and batch > STEPS_BEFORE:
                manager.check()
                self.model.stop_training = manager.latest != self._first

    save = SaveCallback()
    with measured.sample(BESIDE, SAVE) as noted:
        model.fit(ids, targets, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[save])
        manager.wait()
        durations_s = np.diff(save.ends_s).tolist()
        usual_s = statistics.median(durations_s[:STEPS_BEFORE])
        longer_s = max(durations_s[STEPS_BEFORE:]) - usual_s
        noted.update(seconds=manager.last_seconds, pause_s=max(0.0, longer_s))
    manager.close()
