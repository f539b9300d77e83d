"""Watches a chief that is a child process, and the tasks of its cluster."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import termios
import time
from collections.abc import Iterator

from tfps.cluster import missing_tasks
from tfps.launch.chief import Chief
from tfps.launch.local_cluster import LocalCluster
from tfps.launch.output import write_message
from tfps.launch.process import TaskProcess
from tfps.launch.received_signals import ReceivedSignals
from tfps.recovery.restarts.restart_policy import EndJob
from tfps.stop_signals import SAVE_GRACE_S
from tfps.terminal import SHOW_CURSOR, fresh_line, open_line

POLL_INTERVAL_S = 0.1  # at the tasks; also how late the end of the chief is noticed
GRACE_S = SAVE_GRACE_S + 5.0  # from the first signal to SIGKILL: time to save, and to end
REPORT_GRACE_S = 30.0  # from a lost server to SIGKILL: time to notice, to report and to end


class ChiefWatch:
    """Watches a chief, each of its restarts, and the tasks; passes signals on to the chief.

    Args:
        cluster: the tasks; their supervisor starts them again.
        signals: the signals that this process gets.
        reports_failures: whether this process, not the chief, reports why the job cannot go on.
    """

    def __init__(
        self, cluster: LocalCluster, signals: ReceivedSignals, *, reports_failures: bool
    ) -> None:
        self._cluster, self._signals, self._reports_failures = cluster, signals, reports_failures
        self._starting_tasks = dict.fromkeys(cluster.spec.tasks("worker", "ps"), "")
        self._ends_at = math.inf
        self._has_forwarded = 0

    def run(self, chief: Chief) -> int:
        """Wait for a chief's end and return its status; kill it if the job cannot go on.

        Args:
            chief: a chief that has just been started.

        Raises:
            TaskFailed: a task ended while it started.
        """
        supervisor, process, received = (
            self._cluster.supervisor,
            chief.process,
            self._signals.received,
        )
        while (status := process.status()) is None:
            if self._starting_tasks:
                for failure in self._cluster.failures():
                    raise failure
                # Once all listen, the supervisor handles their deaths.
                self._starting_tasks = missing_tasks(self._starting_tasks)
                if not self._starting_tasks:
                    supervisor.mark_started()
            chief.supervisor_pipe.exchange()
            if supervisor.ended and self._ends_at == math.inf:
                self._ends_at = time.monotonic() + self._handle_job_end(supervisor.ended)
            if supervisor.ended and time.monotonic() >= self._ends_at:
                if not self._reports_failures:
                    _print_job_end(supervisor.ended)
                process.kill()
                return 1
            if len(received) > self._has_forwarded:
                self._forward_signal(process)
            if received and time.monotonic() > self._signals.first_at + GRACE_S:
                write_message(f"killing the chief: it still runs after {GRACE_S:g} s")
                process.kill()
            time.sleep(POLL_INTERVAL_S)
        is_expected = bool(received) or self._ends_at < math.inf
        if status and not is_expected and supervisor.ended:
            self._handle_job_end(supervisor.ended)  # the chief ended before this process looked
        return -received[0] if received and status < 0 else status

    def _handle_job_end(self, end: EndJob) -> float:
        """Report that the job cannot go on; return how many seconds the chief has to end."""
        if not self._reports_failures:
            return REPORT_GRACE_S
        _print_job_end(end)
        return REPORT_GRACE_S if end.is_noticed else 0.0

    def _forward_signal(self, process: TaskProcess) -> None:
        """Send a chief the first signal; kill it after a second one."""
        number, self._has_forwarded = self._signals.received[0], len(self._signals.received)
        if self._has_forwarded > 1:
            process.kill()
            return
        process.send(number)
        if number == signal.SIGINT and os.isatty(2):
            open_line(True)  # which a terminal begins with ^C
        name = signal.Signals(number).name
        write_message(f"{name}: stopping (repeat to stop at once); logs in {self._cluster.log_dir}")


def _print_job_end(end: EndJob) -> None:
    write_message(f"the job cannot continue: {end.reason}")


@contextlib.contextmanager
def restore_terminal() -> Iterator[None]:
    """Restore the terminal's modes and cursor at the end of the block."""
    if not (sys.stdin and sys.stdin.isatty() and os.isatty(1)):
        yield
        return
    modes = termios.tcgetattr(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, modes)
        os.write(1, f"{fresh_line()}{SHOW_CURSOR}".encode())  # progress bars hide it
