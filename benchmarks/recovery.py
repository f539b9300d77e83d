"""How long training rests when a task dies, and what it costs to be able to go on.

A restart of the whole job is measured against the loss of a server, in the same run and from the
same checkpoint; its seconds begin with the kill of all its tasks. The cluster of the benchmark
starts them again, as `tfps run` does.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.benchmark import Benchmark
from benchmarks.picture import BLUE, GREY, name_axis, picture
from benchmarks.results import Bar, Case, Measure, Results, cpu_ms
from benchmarks.saving import BATCH, table_model, table_rows
from benchmarks.settings import option
from benchmarks.table import case_table, columns_of, middle
from benchmarks.turn import TaskNumbers, Tasks, Turn
from benchmarks.usage import measured_fit
from benchmarks.workload import MODELS
from tfps.launch import LocalCluster

SERVER, JOB, WORKER = "server", "job", "worker"
WITH, WITHOUT = "with", "without"
TITLES = {
    SERVER: "a server is killed",
    JOB: "the whole job starts again",
    WORKER: "a worker is killed",
    WITH: "with recovery",
    WITHOUT: "without",
}
MOMENTS = [
    Measure.from_results("detected_s", "detected", middle),
    Measure.from_results("connected_s", "connected", middle),
    Measure.from_results("restored_s", "restored", middle),
    Measure.from_results("first_step_s", "first step"),
]
CPU = [Measure("cpu_ms_per_step", cpu_ms, "CPU ms per step")]
MEASURES = {
    SERVER: MOMENTS,
    JOB: MOMENTS,
    WORKER: [
        Measure.from_results("pause_s", "the other rests"),
        Measure.from_results("trains_s", "trains again"),
    ],
    WITH: CPU,
    WITHOUT: CPU,
}
STEPS_BEFORE = 50  # a kill
EPOCH_STEPS = 5000
POLL_INTERVAL_S = 0.01
TIMEOUT_S = 120.0  # with a worker that does not come back
AIMS = {SERVER: 6.0, "pause": 1.0, WORKER: 3.0, WITH: 1.05}


@dataclass(frozen=True)
class RecoveryBenchmark(Benchmark):
    """Seconds until a killed task is back and trains, and CPU of being able to.

    Weights of 1 GiB with Adam's slots on two servers, against a restart of the whole job: ten
    minutes, 3 GB of disk and 8 GB of memory.
    """

    name = "recovery"

    mib: int = option(1024, "Of the model's weights.")  # Adam has twice that besides
    steps: int = 5000  # of the epochs whose CPU is measured

    def quick(self) -> RecoveryBenchmark:
        return replace(self, mib=16, steps=300, repetitions=1)

    def plan(self, folder: Path) -> Iterator[Turn]:
        for repetition in range(self.repetitions):
            both = (WITH, WITHOUT) if repetition % 2 == 0 else (WITHOUT, WITH)
            for what in (SERVER, JOB, WORKER, *both):
                workers, ps = (1, 2) if what in (SERVER, JOB) else (2, 1)
                yield Turn(
                    title=TITLES[what],
                    name=f"recovery_{what}",
                    case={"what": what, "folder": str(folder)},
                    axes={"what": what},
                    tasks=Tasks(workers=workers, ps=ps, prepare=partial(_keep_running, what)),
                    is_timed=True,
                )

    def measure(self, tasks: TaskNumbers, *, what: str, folder: str, began_s: float) -> Any:
        """Measure one fault, or epochs without any."""
        checkpoints = Path(folder) / "checkpoints"
        if what == SERVER:
            shutil.rmtree(checkpoints, ignore_errors=True)  # of the repetition before
            return _lose_server(self.mib, checkpoints, tasks.groups["ps"][-1])
        if what == JOB:
            return _start_again(self.mib, checkpoints, began_s)
        if what == WORKER:
            return _lose_worker(tasks.groups["worker"][-1])
        return _epochs(self.steps, tasks, Path(folder) / "cpu" if what == WITH else None)

    def compute_quantities(self, results: Results, case: Case) -> dict[str, Any]:
        return {each.key: each.of(case) for each in MEASURES[case["what"]]}

    def bars(self, results: Results) -> list[Bar]:
        ratio = results.ratio((SERVER,), (JOB,), lambda case: case.spread("first_step_s"))
        cpu = results.ratio((WITH,), (WITHOUT,), cpu_ms)
        first_s = results.median((SERVER,), "first_step_s")
        pause_s, trains_s = (results.median((WORKER,), name) for name in ("pause_s", "trains_s"))
        return [
            Bar.cost("killed server: s to the first new step", first_s, AIMS[SERVER]),
            Bar.cost("the same over a restart of the whole job", ratio, 1.0),
            Bar.cost("killed worker: s that the other one rests", pause_s, AIMS["pause"]),
            Bar.cost("killed worker: s until it trains again", trains_s, AIMS[WORKER]),
            Bar.cost("CPU per step with recovery over without", cpu, AIMS[WITH]),
        ]

    def tables(self, results: Results) -> list[Table]:
        titles = {
            f"{self.mib} MiB and Adam's slots on 2 ps: seconds from the kill": (SERVER, JOB),
            "2 workers: seconds from the kill": (WORKER,),
            "2 workers: without a fault": (WITH, WITHOUT),
        }
        tables = []
        for title, wanted in titles.items():
            cases = [case for case in results.cases if case["what"] in wanted]
            columns = columns_of(MEASURES[wanted[0]])
            tables.append(case_table(title, [TITLES[c["what"]] for c in cases], cases, columns))
        return tables

    def explanation(self, results: Results) -> str:
        return (
            "Medians (minimum-maximum). A restart of the whole job begins with the kill of all "
            "tasks, which does not have to be found out, and with new processes. The other worker "
            "rests for as long as its steps are furthest apart."
        )

    def draw(self, results: Results, path: Path) -> None:
        """Draw the moments after the loss of a server, and of the whole job."""
        cases = [case for case in results.cases if case["what"] in (SERVER, JOB)][::-1]
        shades = (GREY[0], GREY[1], BLUE[0], BLUE[1])
        with picture(path, 1, 1, size=(9, 2.4)) as (_, axes):
            axis = axes[0, 0]
            for moment, shade in reversed([*zip(MOMENTS, shades, strict=True)]):
                titles = [TITLES[case["what"]] for case in cases]
                medians = [moment.of(case).median for case in cases]
                axis.barh(titles, medians, color=shade, label=moment.heading)
            axis.legend(frameon=False, fontsize=8.5)
            name_axis(axis, title=f"{self.mib} MiB and Adam's slots", label="seconds from the kill")


def _keep_running(what: str, cluster: LocalCluster) -> None:
    cluster.supervisor.set_server_restarts(lambda: what == SERVER)
    cluster.supervisor.write_message = lambda _: None  # of what was to be


def _tables(
    mib: int, folder: Path, *, is_recovered: bool = False
) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Return a strategy, a model of tables, its checkpoints, and arrays to fit it to."""
    import tfps

    fault_tolerance = tfps.FaultTolerance(checkpoints=folder if is_recovered else None)
    strategy = tfps.ParameterServerStrategy(
        placement="round_robin", fault_tolerance=fault_tolerance
    )
    model, ids, targets = table_model(strategy, table_rows(mib), steps=EPOCH_STEPS)
    arrays = {"x": ids, "y": targets, "batch_size": BATCH}
    return strategy, model, tfps.CheckpointManager(model, folder), arrays


@contextmanager
def _moments() -> Iterator[dict[str, float]]:
    """Yield the times of a server's recovery, which log messages add: found, connected, filled."""
    marks = {"detected_s": "goes on when", "connected_s": "connected", "restored_s": "back again"}
    moments: dict[str, float] = {}

    class NoteHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            for name, mark in marks.items():
                if mark in record.getMessage():
                    moments.setdefault(name, record.created)

    logger, note = (
        logging.getLogger("tfps.recovery.servers.server_return"),
        NoteHandler(logging.INFO),
    )
    level = logger.level
    logger.addHandler(note)
    logger.setLevel(logging.INFO)
    try:
        yield moments
    finally:
        logger.removeHandler(note)
        logger.setLevel(level)


def _lose_server(mib: int, folder: Path, process: int) -> dict[str, Any]:
    """Kill a server of tables while they are trained."""
    import keras

    _, model, manager, arrays = _tables(mib, folder, is_recovered=True)
    model.fit(**{name: each[:BATCH] for name, each in arrays.items() if name != "batch_size"})
    manager.save(background=False)

    class Kill(keras.callbacks.Callback):
        killed_s = first_step_s = 0.0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch >= STEPS_BEFORE and not self.killed_s:
                self.killed_s = time.time()
                os.kill(process, signal.SIGKILL)
            elif "restored_s" in moments:
                self.first_step_s = self.first_step_s or time.time()
                self.model.stop_training = True

    kill = Kill()
    with _moments() as moments:
        model.fit(**arrays, epochs=100, shuffle=False, verbose=0, callbacks=[kill])
    moments["first_step_s"] = kill.first_step_s
    return {moment.key: moments[moment.key] - kill.killed_s for moment in MOMENTS}


def _start_again(mib: int, folder: Path, began_s: float) -> dict[str, Any]:
    """Start a job from its checkpoint; all of its tasks are new."""
    import keras

    _, model, manager, arrays = _tables(mib, folder)
    connected_s = time.time()
    if manager.restore_latest() is None:
        raise RuntimeError(f"{folder} has no checkpoint")
    restored_s = time.time()

    class Stop(keras.callbacks.Callback):
        first_step_s = 0.0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.first_step_s = self.first_step_s or time.time()
            self.model.stop_training = True

    stop = Stop()
    model.fit(**arrays, shuffle=False, verbose=0, callbacks=[stop])
    found_s = (began_s, connected_s, restored_s, stop.first_step_s)
    return {moment.key: at_s - began_s for moment, at_s in zip(MOMENTS, found_s, strict=True)}


def _dense(strategy: Any, *, steps: int) -> tuple[Any, dict[str, Any]]:
    """Make a small model, and arrays for `steps` steps of `fit`."""
    import keras
    import numpy as np

    with strategy.scope():
        model = MODELS["mlp"].compiled(keras, "adam")
    random = np.random.default_rng(0)
    positions = np.arange(steps * BATCH) % 6400
    x = random.random((6400, 28, 28), dtype="float32")[positions]
    return model, {"x": x, "y": random.integers(0, 10, len(x)), "batch_size": BATCH}


def _lose_worker(process: int) -> dict[str, Any]:
    """Kill the last of two workers, and look at the steps of both until it trains again."""
    import keras

    import tfps

    strategy = tfps.ParameterServerStrategy()
    model, arrays = _dense(strategy, steps=100)
    model.fit(**arrays, epochs=2, verbose=0)
    killed = threading.Event()
    trains = threading.Event()
    found: dict[str, float] = {}

    def read_steps() -> None:
        killed.wait()
        began_s = last_s = time.perf_counter()
        before = strategy.stats()
        steps, pause_s, again = before.worker_steps, 0.0, None
        while time.perf_counter() - began_s < TIMEOUT_S:
            stats, now_s = strategy.stats(), time.perf_counter()
            if stats.worker_steps[0] > steps[0]:
                pause_s, last_s = max(pause_s, now_s - last_s), now_s
            if again is None and stats.worker_lives[1] > before.worker_lives[1]:
                again = stats.worker_steps[1]
            if again is not None and stats.worker_steps[1] > again:
                found.update(pause_s=max(pause_s, now_s - last_s), trains_s=now_s - began_s)
                break
            steps = stats.worker_steps
            time.sleep(POLL_INTERVAL_S)
        trains.set()

    class Kill(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch >= STEPS_BEFORE and not killed.is_set():
                os.kill(process, signal.SIGKILL)
                killed.set()
            self.model.stop_training = trains.is_set()

    looks = threading.Thread(target=read_steps)
    looks.start()
    model.fit(**arrays, epochs=100_000, verbose=0, callbacks=[Kill()])
    looks.join()
    if not found:
        raise RuntimeError(f"the worker did not train again within {TIMEOUT_S:g} s")
    return found


def _epochs(steps: int, tasks: TaskNumbers, folder: Path | None) -> dict[str, Any]:
    """Train epochs with checkpoints in a folder, or without; nothing is saved in them."""
    import tfps

    fault_tolerance = tfps.FaultTolerance(checkpoints=folder)
    strategy = tfps.ParameterServerStrategy(fault_tolerance=fault_tolerance)
    model, arrays = _dense(strategy, steps=steps)
    clock = tasks.clock(by_role=False)
    return measured_fit(model, clock=clock, steps=steps, epochs=2, **arrays)
