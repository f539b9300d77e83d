"""One turn of a benchmark: a chief process of its own on a cluster that goes on."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfps.errors import TaskFailed
from tfps.launch import LocalCluster
from tfps.launch.environment import task_environment
from tfps.launch.process import describe_status, start_program

TURN_TIMEOUT_S = 600.0  # a turn takes half a minute; one that hangs must not keep the others


@dataclass(frozen=True)
class Turn:
    """What a chief process is to do.

    Args:
        name: in messages, and of the log.
        function: of a module, see `tfps.bench.chief`.
        order: what the function gets.
        needs_cluster: False for what trains in the chief alone.
        environment: further variables; decides Keras's flavour, before TensorFlow is imported.
        timeout_s: it fails when it takes longer.
    """

    name: str
    function: str
    order: Mapping[str, Any]
    needs_cluster: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = TURN_TIMEOUT_S

    def run(self, cluster: LocalCluster, *, log_dir: Path) -> Any:
        """Run it and return what the function answered.

        Raises:
            TaskFailed: the process failed; the message has its last lines.
        """
        environment = task_environment(cluster.spec, "chief", 0, extra=self.environment)
        if not self.needs_cluster:
            del environment["TF_CONFIG"]
        with tempfile.TemporaryDirectory(prefix="tfps-bench-") as folder:
            order_path, result_path = Path(folder) / "order.json", Path(folder) / "result.json"
            order_path.write_text(json.dumps(dict(self.order)))
            module = ["-P", "-m", "tfps.bench.chief", self.function]
            chief = start_program(
                name=f"chief for {self.name}",
                command=[sys.executable, *module, str(order_path), str(result_path)],
                environment=environment,
                log_path=log_dir / f"{self.name}.log",
            )
            try:
                status = chief.wait(self.timeout_s)
            finally:
                chief.kill()
            if status is None:
                raise TaskFailed(chief.report(f"did not end within {self.timeout_s:.0f} s"))
            if status != 0:
                raise TaskFailed(chief.report(describe_status(status)))
            return json.loads(result_path.read_text())


def processes(cluster: LocalCluster, *task_types: str) -> list[int]:
    """The process numbers of a cluster's tasks, in their order."""
    tasks = cluster.spec.tasks(*task_types)
    return [cluster.pid(task_type, index) for task_type, index, _ in tasks]
