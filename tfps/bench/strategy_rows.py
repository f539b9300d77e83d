"""The rows of `tfps bench strategies`: a script, how it starts, what it asks of a cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import tfps
from tfps.bench.lines_changed import lines_changed
from tfps.bench.strategy_shapes import DENSE, LARGE, MIXED, StrategyShape
from tfps.errors import DataError

PACKAGE = Path(tfps.__file__).resolve().parent
# As installed from a wheel, and in a checkout.
FOLDERS = tuple(folder / "examples/strategies" for folder in (PACKAGE / "bundled", PACKAGE.parent))
BEFORE = "one_process.py"  # the script that the others are compared with

# From the path of a script and the numbers of workers and of parameter servers to a command, which
# takes more arguments.
Start = Callable[[Path, int, int], Sequence[str]]


def alone(script: Path, workers: int, ps: int) -> Sequence[str]:
    """In one process."""
    del ps
    return [sys.executable, str(script), "--workers", str(workers)]


def as_chief(script: Path, workers: int, ps: int) -> Sequence[str]:
    """As the chief of a cluster of workers and parameter servers."""
    cluster = ["--workers", str(workers), "--ps", str(ps)]
    run = [sys.executable, "-P", "-m", "tfps", "run", *cluster]
    return [*run, str(script), "--workers", str(workers)]


def on_each_worker(script: Path, workers: int, ps: int) -> Sequence[str]:
    """On all workers at once."""
    del ps
    starter = script.parent / "all_workers.py"
    return [sys.executable, str(starter), "--workers", str(workers), str(script)]


class Share(Enum):
    """Who holds which share of a model's tables."""

    WHOLE = "every process"
    COPIES = "one process, the copies of all workers"
    SERVERS = "the servers; workers ask for rows"
    WORKERS = "the workers"

    def of(self, shape: StrategyShape) -> float:
        """Of the fullest task."""
        shares = {Share.COPIES: float(shape.workers)}
        shares |= {Share.SERVERS: 1 / shape.ps, Share.WORKERS: 1 / shape.workers}
        return shares.get(self, 1.0)


@dataclass(frozen=True)
class StrategyRow:
    """A strategy.

    Args:
        title: in tables and plots.
        script: of examples/strategies.
        start: how it begins.
        mode: of a script that has several.
        needs: what the cluster has to have.
        cannot: why a model is not trained, by the model.
        fewest_workers: below which it is no such strategy.
        most_workers: above which nothing changes; None: more workers are more.
        has_faults: whether workers are processes, which may be slow or killed one by one.
        steps_alone: whether one process takes all steps.
        spare: workers whose gradient a round does not wait for.
        share: who holds which share of the tables.
    """

    title: str
    script: str
    start: Start = as_chief
    mode: str = ""
    needs: str = ""
    cannot: Mapping[str, str] = field(default_factory=dict)
    fewest_workers: int = 1
    most_workers: int | None = None
    has_faults: bool = True
    steps_alone: bool = False
    spare: int = 0
    share: Share = Share.SERVERS

    def counts(self, shape: StrategyShape) -> bool:
        """Whether it has a turn there; what is measured with few workers has none with more."""
        return not shape.is_slow or shape.workers <= (self.most_workers or shape.workers)

    def why_not(self, shape: StrategyShape) -> str | None:
        """Why it cannot train there; None: it can, or an attempt says why not."""
        if shape.workers < self.fewest_workers:
            return f"needs {self.fewest_workers} workers"
        return self.cannot.get(shape.model)

    def command(self, shape: StrategyShape) -> list[str]:
        """What trains, without the arguments of the job."""
        mode = ["--mode", self.mode] if self.mode else []
        return [*self.start(folder() / self.script, shape.workers, shape.ps), *mode]

    @property
    def lines_changed(self) -> int:
        """Of the script for one process."""
        before, after = (folder() / name for name in (BEFORE, self.script))
        return lines_changed(before.read_text(), after.read_text())


ALL_AT_ONCE = "all tasks up, equally fast"
OWN_SCRIPT, TFPS_SCRIPT = "tensorflow_parameter_servers.py", "tfps_parameter_servers.py"
ALONE: Mapping[str, Any] = {"start": alone, "has_faults": False, "steps_alone": True}


def _mode(title: str, mode: str, needs: str, **options: Any) -> StrategyRow:
    return StrategyRow(f"tfps {title}", TFPS_SCRIPT, mode=mode, needs=needs, **options)


ROWS: Mapping[str, StrategyRow] = {
    "one_process": StrategyRow("one process", BEFORE, most_workers=1, share=Share.WHOLE, **ALONE),
    "mirrored": StrategyRow(
        "mirrored", "mirrored.py", needs="one machine", share=Share.COPIES, **ALONE
    ),
    "multi_worker": StrategyRow(
        "multi-worker mirrored",
        "multi_worker_mirrored.py",
        on_each_worker,
        needs=ALL_AT_ONCE,
        share=Share.WHOLE,
    ),
    "tensorflow": StrategyRow("TensorFlow's servers", OWN_SCRIPT, needs="ps up"),
    "asynchronous": _mode("asynchronous", "asynchronous", "ps up"),
    "synchronous": _mode("synchronous", "synchronous", "equally fast"),
    "backup_worker": _mode(
        "backup worker", "backup_worker", "a spare worker", fewest_workers=2, spare=1
    ),
    "bounded": _mode("bounded", "bounded", "ps up"),
    "local_steps": _mode("local steps", "local_steps", "ps up", share=Share.WHOLE),
    "layers": StrategyRow(
        "layers on tasks",
        "model_parallel_layers.py",
        needs=ALL_AT_ONCE,
        cannot=dict.fromkeys((MIXED, LARGE), "its tables and layers do not lie in a row"),
        steps_alone=True,
        share=Share.WORKERS,
    ),
    "tables": StrategyRow(
        "tables on workers",
        "model_parallel_tables.py",
        needs=ALL_AT_ONCE,
        cannot={DENSE: "it has no tables"},
        share=Share.WORKERS,
    ),
}


def folder() -> Path:
    """Where the scripts are.

    Raises:
        DataError: the installation lacks them.
    """
    found = [place for place in FOLDERS if place.is_dir()]
    if not found:
        raise DataError(
            "the scripts of examples/strategies are missing; looked in "
            f"{' and '.join(map(str, FOLDERS))}; install tfps again"
        )
    return found[0]
