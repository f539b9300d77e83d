"""The chief of a local cluster as a child of the process that starts the other tasks."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from tfps.launch.environment import LOG_FILE, task_environment
from tfps.launch.local_cluster import LocalCluster
from tfps.launch.output import LINE_FILE, prefix_stream
from tfps.launch.process import start_program
from tfps.launch.supervisor_pipe import SUPERVISOR_PIPE, SupervisorPipe
from tfps.terminal import fresh_line, open_line, share_line

NAME = "chief"


class Chief:
    """Runs a chief as a child process, whose output goes to this terminal or to prefixed lines.

    Args:
        cluster: its workers and servers.
        command: the arguments of ``tfps``. Signals are blocked until the chief takes them.
        is_prefixed: whether each line begins with the chief's name if there is no terminal.
    """

    def __init__(self, cluster: LocalCluster, command: Sequence[str], *, is_prefixed: bool) -> None:
        log_path = cluster.log_dir / f"{NAME}-0.log"
        pipes = [
            subprocess.PIPE if is_prefixed and not os.isatty(number) else None for number in (1, 2)
        ]
        self._line_file = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as the chief runs
        share_line(self._line_file.fileno())
        self.supervisor_pipe = SupervisorPipe(cluster.supervisor)
        extra = {
            LOG_FILE: str(log_path),
            LINE_FILE: str(self._line_file.fileno()),
            SUPERVISOR_PIPE: str(self.supervisor_pipe.chief_end.fileno()),
        }
        self.process = start_program(
            name=NAME,
            command=[sys.executable, "-P", "-m", "tfps", *command],
            environment=task_environment(cluster.spec, "chief", 0, extra=extra),
            log_path=log_path,
            signals_wait=True,
            stdin=None,
            stdout=pipes[0] or 1,
            stderr=pipes[1] or 2,
            pass_fds=[self._line_file.fileno(), self.supervisor_pipe.chief_end.fileno()],
        )
        self.supervisor_pipe.chief_end.close()
        streams = ((self.process.output, 1), (self.process.errors, 2))
        self._threads = [
            prefix_stream(NAME, source, target=target) for source, target in streams if source
        ]

    def stop(self) -> None:
        """Kill the chief and its children if they still run, and write its last lines."""
        self.process.kill()
        self.supervisor_pipe.close()
        for thread in self._threads:
            thread.join()
        open_line(fresh_line() != "")  # from now on for this process alone
        share_line(None)
        self._line_file.close()
