"""`tfps train` on this machine: a process without TensorFlow that owns all tasks of the job."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tfps.cluster.exit_status import shell_status
from tfps.config import JobConfig
from tfps.job.check import check_start
from tfps.job.fault_tolerance import fault_tolerance_of
from tfps.job.optimizer_arguments import argument_problems_elsewhere
from tfps.launch.chief import Chief
from tfps.launch.chief_watch import NOTICE_S, ChiefWatch, kept_terminal
from tfps.launch.folder import make_folder
from tfps.launch.local_cluster import LocalCluster
from tfps.launch.output import say
from tfps.launch.process import TaskProcess
from tfps.launch.process_restarts import ProcessRestarts
from tfps.launch.received_signals import ReceivedSignals, resting_together
from tfps.launch.stop_signals import GRACE_S
from tfps.recovery.events import EVENTS_FILE, EventLog
from tfps.recovery.restarts.restart_policy import EndJob

LOGS = "logs"  # below training.output
CHIEF = ("chief", 0)
GO_ON = ("--set", "job.fresh=false")  # with what is on the servers by now
AT_ONCE_S = 2.0  # from a second signal to SIGKILL


def run_local_job(config_argument: str | None, overrides: Sequence[str]) -> int:
    """Check a job, start its workers, its servers and its chief, and return the exit status.

    The chief trains and speaks for the job; this process keeps the tasks running, passes signals
    on, and imports no TensorFlow.

    Args:
        config_argument: path of the file, or name of a shipped one; None is the reference job.
        overrides: ``key=value`` each.

    Raises:
        ConfigError: the file or the overrides are wrong; nothing was started.
        ClusterError: the cluster did not come up.
    """
    with ReceivedSignals() as signals, kept_terminal():
        config = check_start(
            config_argument, overrides, argument_problems=argument_problems_elsewhere
        ).config
        output = make_folder(Path(config.training.output), name="training.output")
        logs = make_folder(output / LOGS, name="training.output")
        with LocalCluster(
            workers=config.cluster.workers,
            ps=config.cluster.ps,
            log_dir=logs,
            wait=False,
            fault_tolerance=fault_tolerance_of(config),
        ) as cluster:
            cluster.keeper.say = say
            cluster.keeper.events = EventLog(output / EVENTS_FILE)
            command = _command(config_argument, overrides)
            status = _Chiefs(cluster, signals, config=config).run(command)
            if cluster.keeper.ended is None:
                cluster.keeper.record("job_ended", status=status)
    return shell_status(status)


def _command(config_argument: str | None, overrides: Sequence[str]) -> list[str]:
    """This very job, as its chief runs it."""
    given = [] if config_argument is None else [config_argument]
    changes = [part for override in overrides for part in ("--set", override)]
    return [sys.executable, "-P", "-m", "tfps", "train", *changes, "--", *given]


class _Chiefs:
    """The chief of a job, and where the job has a name, those that go on when it has died."""

    def __init__(
        self, cluster: LocalCluster, signals: ReceivedSignals, *, config: JobConfig
    ) -> None:
        self._cluster, self._signals, self._config = cluster, signals, config
        self._processes = ProcessRestarts(
            CHIEF,
            fault_tolerance=fault_tolerance_of(config),
            signals=signals,
            events=cluster.keeper.events,
        )

    def run(self, command: Sequence[str]) -> int:
        """Run the chief as often as need be; return the last status."""
        at = list(command).index("--")
        again = [*command[:at], *GO_ON, *command[at:]]
        return self._processes.run(
            lambda is_restart: self._run_once(
                again if is_restart else command, is_restart=is_restart
            ),
            may_go_on=lambda: (
                self._cluster.keeper.ended is None and self._config.job.name is not None
            ),
        )

    def _run_once(self, command: Sequence[str], *, is_restart: bool) -> tuple[TaskProcess, int]:
        chief = Chief(self._cluster, command, is_prefixed=False, takes_signals=True)
        if is_restart:
            self._processes.record("task_restarted", pid=chief.process.pid)
        timeout_s = self._config.cluster.connect_timeout_s
        watch = _JobWatch(self._cluster, chief, self._signals, start_timeout_s=timeout_s)
        try:
            with resting_together(chief.process.send):
                status = watch.run()
            if (end := self._cluster.keeper.ended) is not None and watch.is_cut_off:
                say(f"the job cannot go on: {end.reason}")
        finally:
            chief.stop()
        return chief.process, status


class _JobWatch(ChiefWatch):
    """Of a chief that tells by itself what ends it, and answers signals as it would alone."""

    _kills_at = math.inf

    def take_end(self, end: EndJob) -> float:
        """It has been told."""
        return NOTICE_S

    def pass_on(self, number: int, *, is_first: bool) -> None:
        """Give it every signal; after a second one it ends at once."""
        self.chief.process.send(number)
        wait_s = GRACE_S + AT_ONCE_S if is_first else AT_ONCE_S
        self._kills_at = time.monotonic() + wait_s

    def look_at_end(self, seconds: float) -> None:
        """End it where it cannot do so, stopped as it may be."""
        if time.monotonic() > self._kills_at:
            name = signal.Signals(self.signals.received[0]).name
            say(f"the chief still runs {seconds:.0f} s after {name}; ending it")
            self.chief.process.kill()
