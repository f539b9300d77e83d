"""A script of examples/strategies while it runs, looked at from outside."""

from __future__ import annotations

import json
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.process_tree import ProcessTree
from tfps.cluster.exit_status import name_of_status
from tfps.launch.environment import common_environment
from tfps.launch.process import TaskProcess, start_program
from tfps.transport.setting import UNIX_SOCKETS_VARIABLE

CANNOT = "cannot"
# As TensorFlow, C++, the system and Python say it; a stack may follow.
OUT_OF_MEMORY = re.compile(
    "OOM when allocating|bad_alloc|annot allocate memory|MemoryError|failed to create thread"
)
# Of Python; what stands behind it in a log are the last words of what started the script.
ERROR = re.compile(r"(?:Error|Exception): ")
LAST_LINES, MAX_LETTERS = 60, 300


@dataclass(frozen=True)
class ScriptRun:
    """A script that was started."""

    process: TaskProcess
    tree: ProcessTree
    report_path: Path  # where the numbers are that it reports
    steps_folder: Path  # where it notes steps that wait
    begin_s: float

    def why_ended(self, status: int | None) -> str:
        """Return the reason why the script ended, with its last lines."""
        how = "does not end" if status is None else name_of_status(status)
        if OUT_OF_MEMORY.search(self.process.log_path.read_text(errors="replace")):
            return f"{how}: not enough memory"
        lines = self.process.last_lines(LAST_LINES) or ["it printed nothing"]
        errors = [line for line in lines if ERROR.search(line)]
        return f"{how}: {(errors or lines)[-1][:MAX_LETTERS]}"

    def report(self, *, timeout_s: float) -> dict[str, Any]:
        """Return the script's report and what its tasks used, or why there is no report."""
        status = self.process.wait(timeout_s)
        seconds = time.time() - self.begin_s
        if status != 0:
            return {CANNOT: self.why_ended(status)}
        report = json.loads(self.report_path.read_text())
        return {
            **report,
            "seconds": seconds,
            **usage_of_tasks(self.tree),
            **bytes_per_example(self.tree, report),
        }


@contextmanager
def script_run(
    command: Sequence[str], *, title: str, memory_kib: int | None, is_slow: bool, **options: Any
) -> Iterator[ScriptRun]:
    """Start a script with so much memory for each of its processes; end it with the block.

    Tasks of one machine talk TCP, as those of several do, since the system counts that.

    Args:
        command: starts it.
        title: of the process.
        memory_kib: as `ulimit -d` counts it; None: no limit.
        is_slow: whether its steps wait, and are noted.
        options: more of the command line.
    """
    # Tasks of a script that is killed may note one more step while the folder goes.
    with tempfile.TemporaryDirectory(prefix="tfps-bench-", ignore_cleanup_errors=True) as name:
        report_path, steps_folder = Path(name, "report.json"), Path(name, "steps")
        steps_folder.mkdir()
        values = {"report-file": report_path} | options
        values |= {"steps-folder": steps_folder} if is_slow else {}
        own = [text for key, value in values.items() for text in (f"--{key}", str(value))]
        limited = [] if memory_kib is None else ["sh", "-c", f'ulimit -d {memory_kib}; exec "$@"']
        process = start_program(
            name=title,
            command=[*limited, *limited[:1], *command, *own],
            environment=common_environment(extra={UNIX_SOCKETS_VARIABLE: "off"}),
            log_path=Path(name, "log"),
        )
        try:
            with ProcessTree(process.pid) as tree:
                yield ScriptRun(process, tree, report_path, steps_folder, time.time())
        finally:
            process.kill()


def usage_of_tasks(tree: ProcessTree) -> dict[str, Any]:
    """Return memory and CPU of all processes, and of those of each role."""
    by_role = {role: tree.of_role(role) for role in sorted(set(tree.roles.values()))}
    return {
        "largest_task_mib": max(tree.peaks_mib.values()),
        "all_tasks_mib": sum(tree.peaks_mib.values()),
        "cpu_s": sum(tree.cpu_s.values()),
        "tasks": {
            role: {
                "mib": max(tree.peaks_mib[each] for each in processes),
                "cpu_s": statistics.mean(tree.cpu_s[each] for each in processes),
            }
            for role, processes in by_role.items()
        },
    }


def bytes_per_example(tree: ProcessTree, report: dict[str, Any]) -> dict[str, float | None]:
    """Return bytes of an example that workers sent and received, behind the epoch that traces."""
    first_s, *_, last_s = report["ends_at"]
    examples = report["examples"] * (len(report["ends_at"]) - 1)
    found = tree.bytes_between("worker", first_s, last_s)
    up, down = (None, None) if found is None else (count / examples for count in found)
    return {"bytes_up": up, "bytes_down": down}
