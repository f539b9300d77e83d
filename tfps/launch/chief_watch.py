"""Watching a chief that is a child process, and the tasks of its cluster."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import termios
import time
from collections.abc import Iterator

from tfps.cluster import missing_tasks
from tfps.errors import ConnectTimeout
from tfps.launch.chief import Chief
from tfps.launch.local_cluster import LocalCluster
from tfps.launch.received_signals import ReceivedSignals
from tfps.recovery.restarts.restart_policy import EndJob
from tfps.terminal import SHOW_CURSOR, fresh_line

LOOK_EVERY_S = 0.1  # at the tasks; also how late the end of the chief is noticed
START_TIMEOUT_S = 300.0
NOTICE_S = 30.0  # from a lost server to SIGKILL: time to find out, to tell and to end


class ChiefWatch:
    """Watches a chief and the tasks of its cluster, and passes on signals.

    Args:
        cluster: the tasks; their keeper starts them again.
        chief: has just been started.
        signals: that this process gets.
        start_timeout_s: how long the tasks may take until they listen.

    Attributes:
        is_cut_off: whether the chief was ended because it did not end where the job cannot go on.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        chief: Chief,
        signals: ReceivedSignals,
        *,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self.cluster, self.chief, self.signals = cluster, chief, signals
        self._starting = dict.fromkeys(cluster.spec.tasks("worker", "ps"), "")
        self._start_timeout_s = start_timeout_s
        self._start_ends_at = time.monotonic() + start_timeout_s
        self._ends_at = math.inf
        self._passed_on = 0
        self.is_cut_off = False

    def run(self) -> int:
        """Return the chief's status once it ended; end it where the job cannot go on.

        Raises:
            TaskFailed: a task ended while it started.
            ConnectTimeout: a task did not listen in time.
        """
        while (status := self.chief.process.status()) is None:
            if self._starting:
                for failure in self.cluster.failures():
                    raise failure
                self._look_for_tasks()
            self.chief.keeper_line.exchange()
            if (end := self.cluster.keeper.ended) and self._ends_at == math.inf:
                self._ends_at = time.monotonic() + self.take_end(end)
            if time.monotonic() >= self._ends_at:
                self.is_cut_off = True
                self.chief.process.kill()
                return 1
            if len(self.signals.received) > self._passed_on:
                number = self.signals.received[self._passed_on]
                self._passed_on = len(self.signals.received)
                self.pass_on(number, is_first=self._passed_on == 1)
            if self.signals.received:
                self.look_at_end(time.monotonic() - self.signals.first_at)
            time.sleep(LOOK_EVERY_S)
        received = self.signals.received
        is_told = bool(received) or self._ends_at < math.inf
        if status and not is_told and (end := self.cluster.keeper.ended):
            self.take_end(end)  # the chief ended before this process looked
        return -received[0] if received and status < 0 else status

    def take_end(self, end: EndJob) -> float:
        """The job cannot go on; answers how many seconds its chief has to end."""
        raise NotImplementedError

    def pass_on(self, number: int, *, is_first: bool) -> None:
        """Give the chief a signal."""
        raise NotImplementedError

    def look_at_end(self, seconds: float) -> None:
        """The chief still runs so long after the first signal."""
        raise NotImplementedError

    def _look_for_tasks(self) -> None:
        """Note which tasks listen by now; their deaths are the keeper's once all do."""
        self._starting = missing_tasks(self._starting)
        if not self._starting:
            self.cluster.keeper.mark_started()
        elif time.monotonic() > self._start_ends_at:
            names = ", ".join(f"{kind} {index}" for kind, index, _ in self._starting)
            raise ConnectTimeout(
                f"{names} did not listen within {self._start_timeout_s:g} s; "
                f"logs: {self.cluster.log_dir}"
            )


@contextlib.contextmanager
def kept_terminal() -> Iterator[None]:
    """Restore the terminal's modes and cursor: a script ended by a signal cannot."""
    if not (sys.stdin and sys.stdin.isatty() and os.isatty(1)):
        yield
        return
    modes = termios.tcgetattr(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, modes)
        os.write(1, f"{fresh_line()}{SHOW_CURSOR}".encode())  # progress bars hide it
