"""What the chief of one turn of `tfps bench checkpoint` does."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from tfps.bench.checkpoint.ways import RESTORE, SAVE, STREAMED, TENSORFLOW, TFPS
from tfps.bench.memory import peak_mib

VARIABLES, COLUMNS = 8, 256


@dataclass(frozen=True)
class Order:
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


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One save, or one restore.

    Args:
        way: a key of `WAYS`.
        what: `SAVE` or `RESTORE`.
        seconds: until it is done.
        pause_s: how long training rests.
        chief_mib: by which the chief's memory grew at most.
        server_mib: by which that of a server grew at most.
    """

    way: str
    what: str
    seconds: float
    pause_s: float
    chief_mib: float
    server_mib: float


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
        self.samples: list[Sample] = []

    @contextmanager
    def sample(self, way: str, what: str, pause_s: Callable[[], float | None]) -> Iterator[None]:
        """Measure what is inside; a pause of None is all of it."""
        os.sync()  # what was written before must not have to be waited for
        self._chief.begin()
        self._servers.begin()
        begin = time.perf_counter()
        yield
        seconds = time.perf_counter() - begin
        rest_s = pause_s()
        self.samples.append(
            Sample(
                way=way,
                what=what,
                seconds=seconds,
                pause_s=seconds if rest_s is None else rest_s,
                chief_mib=self._chief.growth_mib(),
                server_mib=self._servers.growth_mib(),
            )
        )


def measure(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Save and restore as ordered; answers the samples."""
    import tfps

    order = Order(**fields)
    strategy = tfps.ParameterServerStrategy(placement="round_robin")
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


def _trained(strategy: Any, order: Order, *, steps: int) -> Any:
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
