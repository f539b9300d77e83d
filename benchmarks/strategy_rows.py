"""Shapes of `python -m benchmarks strategies`, which are models on clusters, and its rows.

A row is a script of examples/strategies, how it starts, and what it asks of a cluster.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from tfps.config import bundle
from tfps.units import counted

FOLDER = bundle.find_folder("examples") / "strategies"

DENSE, MIXED, LARGE = "dense", "mixed", "large"
SLOW_WORKERS = (1, 2, 4)
# Of which a task has 1.4 GB before it holds anything, most of it for stacks of threads.
MEMORY_KIB = 4_100_000


@dataclass(frozen=True, kw_only=True)
class StrategyShape:
    """A model on a cluster."""

    title: str  # in tables and plots
    model: str  # of the scripts
    workers: int
    ps: int = 1  # where a strategy has parameter servers
    goal: float | None = None  # the test accuracy whose seconds are counted; None: there is none
    memory_kib: int | None = None  # what a task may take, as `ulimit -d` counts it; None: no limit
    # Whether steps wait 50 ms, so that workers behave like machines of their own; one of the most
    # of them is slowed down and killed.
    is_slow: bool = False
    has_seeds: bool = False  # whether it is trained once for each repetition


SHAPES: Mapping[str, StrategyShape] = {
    DENSE: StrategyShape(
        title="CNN of the reference job, 2 workers",
        model=DENSE,
        workers=2,
        goal=0.83,
        has_seeds=True,
    ),
    MIXED: StrategyShape(
        title="wide & deep with 26 tables, 2 workers",
        model=MIXED,
        workers=2,
        goal=0.8,
        has_seeds=True,
    ),
    LARGE: StrategyShape(
        title="2.7 GB of tables, tasks of 4.2 GB, 4 workers",
        model=LARGE,
        workers=4,
        ps=4,
        memory_kib=MEMORY_KIB,
    ),
    **{
        f"slow_{workers}": StrategyShape(
            title=f"steps that wait 50 ms, {counted(workers, 'worker')}",
            model=DENSE,
            workers=workers,
            is_slow=True,
        )
        for workers in SLOW_WORKERS
    },
}

# From the path of a script and the numbers of workers and of parameter servers to a command, which
# takes more arguments.
Start = Callable[[Path, int, int], Sequence[str]]


def alone(script: Path, workers: int, ps: int) -> Sequence[str]:
    """Return the command that runs a script in one process."""
    del ps
    return [sys.executable, str(script), "--workers", str(workers)]


def as_chief(script: Path, workers: int, ps: int) -> Sequence[str]:
    """Return the command that runs a script as the chief of a cluster with parameter servers."""
    cluster = ["--workers", str(workers), "--ps", str(ps)]
    run = [sys.executable, "-P", "-m", "tfps", "run", *cluster]
    return [*run, str(script), "--workers", str(workers)]


def on_each_worker(script: Path, workers: int, ps: int) -> Sequence[str]:
    """Return the command that runs a script on all workers at once."""
    del ps
    starter = script.parent / "all_workers.py"
    return [sys.executable, str(starter), "--workers", str(workers), str(script)]


def whole(_: StrategyShape) -> float:
    """Return 1: every process has all tables."""
    return 1.0


def among_workers(shape: StrategyShape) -> float:
    """Return one worker's share of the tables."""
    return 1 / shape.workers


@dataclass(frozen=True)
class StrategyRow:
    """A strategy."""

    title: str  # in tables and plots
    script: str  # of examples/strategies
    _: KW_ONLY
    lines_changed: int  # of the script for one process
    needs: str = ""  # what the cluster has to have
    start: Start = as_chief  # how it begins
    mode: str = ""  # of a script that has several
    cannot: Mapping[str, str] = field(default_factory=dict)  # by the model: why it is not trained
    fewest_workers: int = 1  # below which it is no such strategy
    most_workers: int | None = None  # above which nothing changes; None: more workers are more
    has_faults: bool = True  # whether workers are processes, which may be slow, or killed
    steps_alone: bool = False  # whether one process takes all steps
    spare: int = 0  # workers whose gradient a round does not wait for
    # What the fullest task holds of the tables; the servers have them, and workers ask for rows.
    share: Callable[[StrategyShape], float] = lambda shape: 1 / shape.ps

    def counts(self, shape: StrategyShape) -> bool:
        """Return whether the strategy is measured with this number of workers."""
        return not shape.is_slow or shape.workers <= (self.most_workers or shape.workers)

    def why_not(self, shape: StrategyShape) -> str | None:
        """Return why the strategy cannot train on a shape, or None."""
        if shape.workers < self.fewest_workers:
            return f"needs {self.fewest_workers} workers"
        return self.cannot.get(shape.model)

    def command(self, shape: StrategyShape) -> list[str]:
        """Return the command that trains, without the arguments of the job."""
        mode = ["--mode", self.mode] if self.mode else []
        return [*self.start(FOLDER / self.script, shape.workers, shape.ps), *mode]


ALL_AT_ONCE = "all tasks up, equally fast"
ALONE: Mapping[str, Any] = {"start": alone, "has_faults": False, "steps_alone": True}


def _mode(mode: str, needs: str, **options: Any) -> StrategyRow:
    options |= {"lines_changed": 9, "needs": needs, "mode": mode}
    return StrategyRow(f"tfps {mode.replace('_', ' ')}", "tfps_parameter_servers.py", **options)


ROWS: Mapping[str, StrategyRow] = {
    "one_process": StrategyRow(
        "one process", "one_process.py", lines_changed=0, most_workers=1, share=whole, **ALONE
    ),
    "mirrored": StrategyRow(
        "mirrored",
        "mirrored.py",
        lines_changed=7,
        needs="one machine",
        share=lambda shape: float(shape.workers),  # the copies of all workers lie in one process
        **ALONE,
    ),
    "multi_worker": StrategyRow(
        "multi-worker mirrored",
        "multi_worker_mirrored.py",
        lines_changed=8,
        needs=ALL_AT_ONCE,
        start=on_each_worker,
        share=whole,
    ),
    "tensorflow": StrategyRow(
        "TensorFlow's servers", "tensorflow_parameter_servers.py", lines_changed=8, needs="ps up"
    ),
    "asynchronous": _mode("asynchronous", "ps up"),
    "synchronous": _mode("synchronous", "equally fast"),
    "all_reduce": _mode("all_reduce", "equally fast"),
    "backup_worker": _mode("backup_worker", "a spare worker", fewest_workers=2, spare=1),
    "bounded": _mode("bounded", "ps up"),
    "local_steps": _mode("local_steps", "ps up", share=whole),
    "layers": StrategyRow(
        "layers on tasks",
        "model_parallel_layers.py",
        lines_changed=41,
        needs=ALL_AT_ONCE,
        cannot=dict.fromkeys((MIXED, LARGE), "its tables and layers do not lie in a row"),
        steps_alone=True,
        share=among_workers,
    ),
    "tables": StrategyRow(
        "tables on workers",
        "model_parallel_tables.py",
        lines_changed=45,
        needs=ALL_AT_ONCE,
        cannot={DENSE: "it has no tables"},
        share=among_workers,
    ),
}
