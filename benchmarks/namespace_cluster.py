"""Workers and servers of a benchmark on links of their own."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.namespaces import NamespaceNetwork
from tfps.cluster import ClusterSpec
from tfps.launch.environment import task_environment
from tfps.launch.process import TaskProcess, start_program

SERVE = [sys.executable, "-P", "-m", "tfps", "serve"]
SERVED = ("worker", "ps")


class NamespaceCluster:
    """Tasks that serve, each in its network namespace; the chief's own is there for turns.

    Leaving the ``with`` block ends them.

    Args:
        network: with a namespace for the chief and for each task.
        log_dir: a folder for one log per task.
    """

    def __init__(self, network: NamespaceNetwork, *, log_dir: Path) -> None:
        log_dir.mkdir(parents=True, exist_ok=True)
        self._network = network
        self._tasks: dict[tuple[str, int], TaskProcess] = {}
        for kind, index, _ in self.spec.tasks(*SERVED):
            self._tasks[kind, index] = start_program(
                name=f"{kind} {index}",
                command=network.command((kind, index), SERVE),
                environment=task_environment(self.spec, kind, index),
                log_path=log_dir / f"{kind}-{index}.log",
            )

    @property
    def spec(self) -> ClusterSpec:
        """The addresses of the tasks."""
        return self._network.spec

    @property
    def chief_command(self) -> tuple[str, ...]:
        """Return the words to put before the command of a chief process."""
        return tuple(self._network.command(("chief", 0), []))

    def pid(self, task_type: str, index: int) -> int:
        """Return the number of a task's process."""
        return self._tasks[task_type, index].pid

    def __enter__(self) -> NamespaceCluster:
        return self

    def __exit__(self, *_: object) -> None:
        for task in self._tasks.values():
            task.kill()
