"""The rows of `tfps bench strategies`: a script, how it starts, what it asks of a cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tfps
from tfps.bench.lines_changed import lines_changed
from tfps.errors import DataError

PACKAGE = Path(tfps.__file__).resolve().parent
# As installed from a wheel, and in a checkout.
FOLDERS = tuple(folder / "examples/strategies" for folder in (PACKAGE / "bundled", PACKAGE.parent))
BEFORE = "one_process.py"  # the script that the others are compared with
MODELS = {"dense": "CNN of the reference job", "mixed": "wide & deep, 26 tables"}
PS = 1

# From the path of a script and the number of workers to a command, which takes more arguments.
Start = Callable[[Path, int], Sequence[str]]


def alone(script: Path, workers: int) -> Sequence[str]:
    """In one process."""
    return [sys.executable, str(script), "--workers", str(workers)]


def as_chief(script: Path, workers: int) -> Sequence[str]:
    """As the chief of a cluster of workers and a parameter server."""
    cluster = ["--workers", str(workers), "--ps", str(PS)]
    run = [sys.executable, "-P", "-m", "tfps", "run", *cluster]
    return [*run, str(script), "--workers", str(workers)]


def on_each_worker(script: Path, workers: int) -> Sequence[str]:
    """On all workers at once."""
    starter = script.parent / "all_workers.py"
    return [sys.executable, str(starter), "--workers", str(workers), str(script)]


@dataclass(frozen=True)
class StrategyRow:
    """A strategy."""

    title: str
    script: str
    start: Start = as_chief
    mode: str = ""  # of a script that has several
    needs: str = ""  # what the cluster has to have
    cannot: Mapping[str, str] = field(default_factory=dict)  # by model: why it is not trained
    fewest_workers: int = 1
    only_workers: int | None = None  # where their number changes nothing

    def why_not(self, model: str, workers: int) -> str | None:
        """Why it cannot train a model on so many workers; None: it can."""
        if workers < self.fewest_workers:
            return f"needs {self.fewest_workers} workers"
        return self.cannot.get(model)

    def command(self, workers: int) -> list[str]:
        """What trains, without the arguments of the job."""
        mode = ["--mode", self.mode] if self.mode else []
        return [*self.start(folder() / self.script, workers), *mode]

    @property
    def lines_changed(self) -> int:
        """Of the script for one process."""
        before, after = (folder() / name for name in (BEFORE, self.script))
        return lines_changed(before.read_text(), after.read_text())


ALL_AT_ONCE = "all tasks up, equally fast"
OWN_SCRIPT, TFPS_SCRIPT = "tensorflow_parameter_servers.py", "tfps_parameter_servers.py"
ROWS: Mapping[str, StrategyRow] = {
    "one_process": StrategyRow("one process", BEFORE, alone, only_workers=1),
    "mirrored": StrategyRow("mirrored", "mirrored.py", alone, needs="one machine"),
    "multi_worker": StrategyRow(
        "multi-worker mirrored", "multi_worker_mirrored.py", on_each_worker, needs=ALL_AT_ONCE
    ),
    "tensorflow": StrategyRow("TensorFlow's servers", OWN_SCRIPT, needs="ps up"),
    "asynchronous": StrategyRow(
        "tfps asynchronous", TFPS_SCRIPT, mode="asynchronous", needs="ps up"
    ),
    "synchronous": StrategyRow(
        "tfps synchronous", TFPS_SCRIPT, mode="synchronous", needs="equally fast"
    ),
    "backup_worker": StrategyRow(
        "tfps, a backup worker",
        TFPS_SCRIPT,
        mode="backup_worker",
        needs="a spare worker",
        fewest_workers=2,
    ),
    "bounded": StrategyRow("tfps bounded", TFPS_SCRIPT, mode="bounded", needs="ps up"),
    "local_steps": StrategyRow("tfps local steps", TFPS_SCRIPT, mode="local_steps", needs="ps up"),
    "layers": StrategyRow(
        "layers on tasks",
        "model_parallel_layers.py",
        needs=ALL_AT_ONCE,
        cannot={"mixed": "its tables and layers do not lie in a row"},
    ),
    "tables": StrategyRow(
        "tables on workers",
        "model_parallel_tables.py",
        needs=ALL_AT_ONCE,
        cannot={"dense": "it has no tables"},
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
