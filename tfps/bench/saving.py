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
from tfps.bench.memory import peak_mib

TFPS, STREAMED, TENSORFLOW = "tfps", "streamed", "tensorflow"
BESIDE = "beside"
SAVE, RESTORE = "save", "restore"

VARIABLES, COLUMNS = 8, 256
# Beside training: a save of 3 GB takes 8 s, and 5,000 steps more than half a minute.
BATCH = 64
STEPS = 5000
STEPS_BEFORE = 50
LOOK_EVERY_STEPS = 10


class Memory:
    """By how much the memory of processes grows at most.

    Args:
        processes: their numbers.
    """

    def __init__(self, processes: Sequence[int]) -> None:
        self._processes = processes
        self._before: dict[int, float] = {}

    def begin(self) -> None:
        """Forget earlier peaks."""
        for process in self._processes:
            Path(f"/proc/{process}/clear_refs").write_text("5")
            self._before[process] = psutil.Process(process).memory_info().rss / 2**20

    def growth_mib(self) -> float:
        """The largest of all processes since then."""
        return max(peak_mib(process) - self._before[process] for process in self._processes)


class Measured:
    """Takes samples.

    Args:
        servers: the process numbers of the servers.
    """

    def __init__(self, servers: Sequence[int]) -> None:
        self._chief, self._servers = Memory([os.getpid()]), Memory(servers)
        self.samples: list[dict[str, Any]] = []

    @contextmanager
    def sample(self, way: str, what: str) -> Iterator[dict[str, Any]]:
        """Measure what is inside; training rests for all of it, unless it notes another pause."""
        os.sync()  # what was written before must not have to be waited for
        self._chief.begin()
        self._servers.begin()
        noted: dict[str, Any] = {}
        begin = time.perf_counter()
        yield noted
        seconds = time.perf_counter() - begin
        self.samples.append(
            {
                "way": way,
                "what": what,
                "seconds": seconds,
                "pause_s": seconds,
                "chief_mib": self._chief.growth_mib(),
                "server_mib": self._servers.growth_mib(),
                **noted,
            }
        )


def measure_saving(
    mib: int, folder: Path, ways: Sequence[str], *, servers: Sequence[int]
) -> list[dict[str, Any]]:
    """Save and restore, and answer a sample of each.

    Args:
        mib: of the model's weights; Adam has twice that besides.
        folder: of the checkpoint of tfps; it stays for other turns.
        ways: to save and restore in, in this order; none: only restore.
        servers: the process numbers of the servers.
    """
    strategy = tfps.ParameterServerStrategy(placement="round_robin")
    measured = Measured(servers)
    if BESIDE in ways:
        _measure_beside(strategy, measured, mib=mib, folder=folder / "beside")
        return measured.samples
    model = _trained(strategy, mib, steps=2 if ways else 1)
    if not ways:
        manager = tfps.CheckpointManager(model, folder)
        with measured.sample(TFPS, RESTORE):
            manager.restore_latest()
        _check(model, 2)
        return measured.samples
    for way in ways:
        to = folder if way == TFPS else folder / way
        if way == TENSORFLOW:
            _measure_tensorflow(model, measured, to)
        else:
            _measure_ours(model, measured, to, way)
        _check(model, 2)
    for way in (STREAMED, TENSORFLOW):
        shutil.rmtree(folder / way)
    return measured.samples


def _measure_ours(model: Any, measured: Measured, folder: Path, way: str) -> None:
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


def _measure_tensorflow(model: Any, measured: Measured, folder: Path) -> None:
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


def _trained(strategy: Any, mib: int, *, steps: int) -> Any:
    """A model of some variables, with all of its slots, after some updates."""
    import keras
    import numpy as np

    rows = max(1, mib * 2**20 // VARIABLES // COLUMNS // 4)

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


def _measure_beside(strategy: Any, measured: Measured, *, mib: int, folder: Path) -> None:
    """Save while tables of so many MiB are trained."""
    import keras
    import numpy as np

    from tfps.checkpoint import KeepLatest

    rows = max(1, mib * 2**20 // VARIABLES // COLUMNS // 4)
    inputs = keras.Input((VARIABLES,), dtype="int32")
    with strategy.scope():
        found = [
            keras.layers.Embedding(rows, COLUMNS, embeddings_initializer="ones")(inputs[:, k])
            for k in range(VARIABLES)
        ]
        model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Add()(found)))
        model.compile(tfps.optimizers.RowUpdates(keras.optimizers.Adam(1e-3)), "mse")
    ids = np.random.default_rng(0).integers(0, rows, size=(STEPS * BATCH, VARIABLES), dtype="int32")
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
    with measured.sample(BESIDE, SAVE) as noted:
        model.fit(ids, targets, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[save])
        manager.wait()
        longer_s = max(save.after_s) - statistics.median(save.before_s)
        noted.update(seconds=manager.last_seconds, pause_s=max(0.0, longer_s))
    manager.close()
