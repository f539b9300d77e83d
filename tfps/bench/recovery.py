"""How long training rests when a task dies, and what it costs to be able to go on.

Tables with Adam's slots lie on two servers, of which one is killed while `RowUpdates` trains them:
seconds until its loss is known, the chief is connected with the new process, its rows are restored
and the first new step is done. Against that, in the same run, a restart of the whole job from the
same checkpoint, whose seconds begin with the kill of all its tasks. Then one of two workers is
killed, and at last CPU per step is measured with a `tfps.Recovery` and without, while nothing is
saved. Whoever keeps the tasks here starts them again, as `tfps run` does.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from tfps.bench.picture import BLUE, GREY, name_axis, picture
from tfps.bench.results import Bar, Case, Results
from tfps.bench.runner import Bench, Benchmark, TaskNumbers
from tfps.bench.saving import BATCH, table_model, table_rows
from tfps.bench.settings import option
from tfps.bench.table import case_table, number_text, spread_text
from tfps.bench.usage import clock_callback, epochs_answer

SERVER, JOB, WORKER = "server", "job", "worker"
WITH, WITHOUT = "with", "without"
TITLES = {
    SERVER: "a server is killed",
    JOB: "the whole job starts again",
    WORKER: "a worker is killed",
    WITH: "with recovery",
    WITHOUT: "without",
}
MOMENTS = {
    "detected_s": "detected",
    "connected_s": "connected",
    "restored_s": "restored",
    "first_step_s": "first step",
}
STEPS_BEFORE = 50  # a kill
EPOCH_STEPS = 5000
LOOK_EVERY_S = 0.01
PATIENCE_S = 120.0  # with a worker that does not come back
AIMS = {SERVER: 6.0, "pause": 1.0, WORKER: 3.0, WITH: 1.05}


@dataclass(frozen=True)
class RecoveryBenchmark(Benchmark):
    """Seconds until a killed task is back and trains, and CPU of being able to.

    Weights of 1 GiB with Adam's slots on two servers, against a restart of the whole job: ten
    minutes, 3 GB of disk and 8 GB of memory.

    Args:
        mib: of the model's weights; Adam has twice that besides.
        steps: of the epochs whose CPU is measured.
        repetitions: turns of each; each is a fresh chief process.
    """

    name = "recovery"

    mib: int = option(1024, click.IntRange(min=1), "Of the model's weights.")
    steps: int = 5000

    def quick(self) -> RecoveryBenchmark:
        return replace(self, mib=16, steps=300, repetitions=1)

    @property
    def turns(self) -> int:
        return 5 * self.repetitions

    def run(self, bench: Bench) -> None:
        """Measure everything; the checkpoint lies beside the logs meanwhile."""
        folder = bench.log_dir.absolute() / "checkpoints"

        def turn(what: str, *, workers: int, ps: int, began_s: float = 0.0) -> None:
            bench.progress(TITLES[what])
            with bench.cluster(workers, ps, name=f"cluster-{what}") as cluster:
                if cluster is not None:
                    cluster.keeper.want_servers(lambda: what == SERVER)
                    cluster.keeper.say = lambda _: None  # of what was to be
                case = {"what": what, "folder": str(folder), "began_s": began_s}
                found = bench.turn(cluster, name=f"recovery_{what}", case=case)
                bench.results.add(found, what=what)

        try:
            for repetition in range(self.repetitions):
                turn(SERVER, workers=1, ps=2)
                turn(JOB, workers=1, ps=2, began_s=time.time())
                shutil.rmtree(folder, ignore_errors=True)
                turn(WORKER, workers=2, ps=1)
                both = (WITH, WITHOUT)
                for what in both if repetition % 2 == 0 else reversed(both):
                    turn(what, workers=2, ps=1)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def measure(self, tasks: TaskNumbers, *, what: str, folder: str, began_s: float) -> Any:
        """Measure one fault, or epochs without any."""
        if what == SERVER:
            return _lose_server(self.mib, Path(folder), tasks.groups["ps"][-1])
        if what == JOB:
            return _start_again(self.mib, Path(folder), began_s)
        if what == WORKER:
            return _lose_worker(tasks.groups["worker"][-1])
        return _epochs(self.steps, tasks, Path(folder) / "cpu" if what == WITH else None)

    def quantities(self, results: Results, case: Case) -> dict[str, Any]:
        if case.samples:
            return {"cpu_ms_per_step": case.cpu_ms_per_step}
        names = [name for name in case.runs[0] if name.endswith("_s")]
        return {name: case.spread(name) for name in names}

    def bars(self, results: Results) -> list[Bar]:
        def median(what: str, quantity: str) -> float | None:
            case = results.find(what)
            return None if case is None else case.spread(quantity).median

        ratio = results.ratio((SERVER,), (JOB,), lambda case: case.spread("first_step_s"))
        cpu = results.ratio((WITH,), (WITHOUT,), lambda case: case.cpu_ms_per_step)
        costs = [
            (
                "killed server: s to the first new step",
                median(SERVER, "first_step_s"),
                AIMS[SERVER],
            ),
            ("the same over a restart of the whole job", ratio, 1.0),
            ("killed worker: s that the other one rests", median(WORKER, "pause_s"), AIMS["pause"]),
            ("killed worker: s until it trains again", median(WORKER, "trains_s"), AIMS[WORKER]),
            ("CPU per step with recovery over without", cpu, AIMS[WITH]),
        ]
        return [Bar(*cost, is_cost=True) for cost in costs]

    def tables(self, results: Results) -> list[Table]:
        def of(name: str) -> Callable[[Case], str]:
            return lambda case: spread_text(case.spread(name))

        def middle(name: str) -> Callable[[Case], str]:
            return lambda case: number_text(case.spread(name).median)

        *earlier, last = MOMENTS.items()

        groups: list[tuple[str, tuple[str, ...], dict[str, Callable[[Case], str]]]] = [
            (
                f"{self.mib} MiB and Adam's slots on 2 ps: seconds from the kill",
                (SERVER, JOB),
                {heading: middle(name) for name, heading in earlier} | {last[1]: of(last[0])},
            ),
            (
                "2 workers: seconds from the kill",
                (WORKER,),
                {"the other rests": of("pause_s"), "trains again": of("trains_s")},
            ),
            (
                "2 workers: without a fault",
                (WITH, WITHOUT),
                {"CPU ms per step": lambda case: spread_text(case.cpu_ms_per_step)},
            ),
        ]
        tables = []
        for title, wanted, columns in groups:
            cases = [case for case in results.cases if case["what"] in wanted]
            names = [TITLES[case["what"]] for case in cases]
            tables.append(case_table(title, names, cases, columns))
        return tables

    def explanation(self, results: Results) -> str:
        return (
            "Medians (minimum-maximum). A restart of the whole job begins with the kill of all "
            "tasks, which nobody has to find out, and with new processes. The other worker rests "
            "for as long as its steps are furthest apart."
        )

    def draw(self, results: Results, path: Path) -> None:
        """Draw the moments after the loss of a server, and of the whole job."""
        cases = [case for case in results.cases if case["what"] in (SERVER, JOB)][::-1]
        shades = (GREY[0], GREY[1], BLUE[0], BLUE[1])
        with picture(path, 1, 1, size=(9, 2.4)) as (_, axes):
            axis = axes[0, 0]
            for (name, label), shade in reversed([*zip(MOMENTS.items(), shades, strict=True)]):
                axis.barh(
                    [TITLES[case["what"]] for case in cases],
                    [case.spread(name).median for case in cases],
                    color=shade,
                    label=label,
                )
            axis.legend(frameon=False, fontsize=8.5)
            name_axis(axis, title=f"{self.mib} MiB and Adam's slots", label="seconds from the kill")


def _tables(mib: int, manager_folder: Path) -> tuple[Any, Any, Any, dict[str, Any]]:
    """A strategy, a model of tables, its checkpoints, and arrays to fit it to."""
    import tfps

    strategy = tfps.ParameterServerStrategy(placement="round_robin")
    model, ids, targets = table_model(strategy, table_rows(mib), steps=EPOCH_STEPS)
    arrays = {"x": ids, "y": targets, "batch_size": BATCH}
    return strategy, model, tfps.CheckpointManager(model, manager_folder), arrays


@contextmanager
def _moments() -> Iterator[dict[str, float]]:
    """When a server's loss was found out, was connected with again, and had its rows back."""
    marks = {"detected_s": "goes on when", "connected_s": "connected", "restored_s": "back again"}
    moments: dict[str, float] = {}

    class Note(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            for name, mark in marks.items():
                if mark in record.getMessage():
                    moments.setdefault(name, record.created)

    logger, note = logging.getLogger("tfps.recovery.server_return"), Note(logging.INFO)
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

    import tfps

    strategy, model, manager, arrays = _tables(mib, folder)
    strategy.recovery = tfps.Recovery(checkpoints=manager)
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
    return {name: moments[name] - kill.killed_s for name in MOMENTS} | {
        "updates_lost": strategy.stats().updates_lost
    }


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
    moments = (began_s, connected_s, restored_s, stop.first_step_s)
    return {name: moment - began_s for name, moment in zip(MOMENTS, moments, strict=True)}


def _dense(strategy: Any) -> tuple[Any, dict[str, Any]]:
    """A small model, and arrays to fit it to."""
    import keras
    import numpy as np

    with strategy.scope():
        layers = [keras.Input((784,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)]
        model = keras.Sequential(layers)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss)
    random = np.random.default_rng(0)
    x = random.random((6400, 784), dtype="float32")
    return model, {"x": x, "y": random.integers(0, 10, len(x)), "batch_size": BATCH}


def _lose_worker(process: int) -> dict[str, Any]:
    """Kill the last of two workers, and look at the steps of both until it trains again."""
    import keras

    import tfps

    strategy = tfps.ParameterServerStrategy()
    model, arrays = _dense(strategy)
    model.fit(**arrays, epochs=2, verbose=0)
    killed = threading.Event()
    trains = threading.Event()
    found: dict[str, float] = {}

    def look() -> None:
        killed.wait()
        began_s = last_s = time.perf_counter()
        before = strategy.stats()
        steps, pause_s, again = before.worker_steps, 0.0, None
        while time.perf_counter() - began_s < PATIENCE_S:
            stats, now_s = strategy.stats(), time.perf_counter()
            if stats.worker_steps[0] > steps[0]:
                pause_s, last_s = max(pause_s, now_s - last_s), now_s
            if again is None and stats.incarnations[1] > before.incarnations[1]:
                again = stats.worker_steps[1]
            if again is not None and stats.worker_steps[1] > again:
                found.update(pause_s=max(pause_s, now_s - last_s), trains_s=now_s - began_s)
                break
            steps = stats.worker_steps
            time.sleep(LOOK_EVERY_S)
        trains.set()

    class Kill(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch >= STEPS_BEFORE and not killed.is_set():
                os.kill(process, signal.SIGKILL)
                killed.set()
            self.model.stop_training = trains.is_set()

    looks = threading.Thread(target=look)
    looks.start()
    model.fit(**arrays, epochs=100_000, verbose=0, callbacks=[Kill()])
    looks.join()
    if not found:
        raise RuntimeError(f"the worker did not train again within {PATIENCE_S:g} s")
    return found


def _epochs(steps: int, tasks: TaskNumbers, folder: Path | None) -> dict[str, Any]:
    """Train epochs with a `tfps.Recovery` over a folder, or without; nothing is saved in them."""
    import keras
    import numpy as np

    import tfps

    strategy = tfps.ParameterServerStrategy()
    model, arrays = _dense(strategy)
    if folder is not None:
        strategy.recovery = tfps.Recovery(checkpoints=tfps.CheckpointManager(model, folder))
    model.fit(**arrays, epochs=1, verbose=0)
    positions = np.arange(steps * BATCH) % len(arrays["x"])
    clock = tasks.clock(by_role=False)
    model.fit(
        arrays["x"][positions],
        arrays["y"][positions],
        batch_size=BATCH,
        epochs=2,
        verbose=0,
        callbacks=[clock_callback(keras, clock, steps)],
    )
    return epochs_answer(strategy, clock.samples)
