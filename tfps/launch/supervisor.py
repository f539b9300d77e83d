"""A cluster on this machine, with the script as its chief: started, watched and ended together."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from tfps.cluster.exit_status import shell_status
from tfps.launch.chief import Chief
from tfps.launch.chief_watch import NOTICE_S, ChiefWatch, kept_terminal
from tfps.launch.local_cluster import LocalCluster
from tfps.launch.log_folder import LogFolder
from tfps.launch.output import LogFollower, say
from tfps.launch.process import describe_status
from tfps.launch.received_signals import ReceivedSignals
from tfps.recovery.fault_tolerance import FaultTolerance, check_fault_tolerance
from tfps.recovery.restarts.kept_tasks import in_words
from tfps.recovery.restarts.restart_policy import EndJob
from tfps.terminal import open_line
from tfps.units import count_tasks

GRACE_S = 10.0  # from the first signal to SIGKILL: time to write a last checkpoint


def supervise(
    script: str,
    arguments: Sequence[str],
    *,
    workers: int,
    ps: int,
    log_dir: str | None = None,
    fault_tolerance: FaultTolerance | None = None,
) -> int:
    """Start a local cluster, run a script as its chief, and stop everything when it ends.

    A worker that dies is reported and started again. Where too few are left, the script ends.

    On a terminal the script has it for itself, so that progress bars work; elsewhere its lines
    get its name like those of the other tasks. The first Ctrl-C or SIGTERM goes to the script, a
    second one ends everything at once.

    Args:
        script: the file.
        arguments: the script's.
        workers: how many workers.
        ps: how many parameter servers.
        log_dir: a folder for the logs; None takes a new temporary one, which goes after a success.
        fault_tolerance: how often a task that dies is started again; None is the default.

    Returns:
        The script's exit status, 128 + n if signal n ended it, 1 if the job could not go on.

    Raises:
        ConfigError: a count is below 1, or `fault_tolerance` asks for more workers than there are.
        TaskFailed: a task ended while it started.
        ConnectTimeout: a task did not listen in time.
    """
    check_fault_tolerance(fault_tolerance, workers=workers)  # before there is a folder
    folder = LogFolder(log_dir, prefix="tfps-run-")
    well = False
    try:
        with ReceivedSignals() as signals, kept_terminal():
            with LocalCluster(
                workers=workers,
                ps=ps,
                log_dir=folder.path,
                wait=False,
                fault_tolerance=fault_tolerance,
            ) as cluster:
                cluster.keeper.say = say
                say(f"starting {count_tasks(workers=workers, ps=ps)}; {folder}")
                follower = LogFollower(cluster.logs, target=2)
                command = [sys.executable, "-P", "-m", "tfps", "run", script, *arguments]
                chief = Chief(cluster, command, is_prefixed=True)
                try:
                    status = _ScriptWatch(cluster, chief, signals).run()
                    if cluster.keeper.ended is None:
                        cluster.keeper.record("job_ended", status=status)
                    well = status == 0 and not (cluster.failures() or cluster.keeper.restarts)
                finally:
                    chief.stop()
                    cluster.close()
                    follower.close()
                    if text := in_words(cluster.keeper.restarts):
                        say(text)
    finally:
        folder.end(well=well)
    if not well and not signals.received:
        say(f"{script} {describe_status(status)}; logs in {folder.path}")
    return shell_status(status)


class _ScriptWatch(ChiefWatch):
    """Of a script, which knows nothing of its cluster: this process speaks for it."""

    def take_end(self, end: EndJob) -> float:
        """Say it at once; a script that notices by itself has time to tell in its own words."""
        say(f"the job cannot go on: {end.reason}")
        return NOTICE_S if end.is_noticed else 0.0

    def pass_on(self, number: int, *, is_first: bool) -> None:
        """Give the script the first signal; a second one ends it at once."""
        if not is_first or self._has_ended_by(number):
            self.chief.process.kill()
            return
        if number == signal.SIGINT and os.isatty(2):
            open_line(True)  # which a terminal begins with ^C
        name = signal.Signals(number).name
        say(f"{name}: stopping (once more: at once); logs in {self.cluster.log_dir}")

    def look_at_end(self, seconds: float) -> None:
        """End a script that does not listen."""
        if seconds > GRACE_S:
            say(f"the script still runs after {GRACE_S:g} s; ending it")
            self.chief.process.kill()

    def _has_ended_by(self, number: int) -> bool:
        self.chief.process.send(number)
        return self.chief.process.status() is not None
