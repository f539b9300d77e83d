"""A cluster on this machine, with the script as its chief: started, watched and ended together."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence

from tfps.cluster import missing_tasks
from tfps.errors import ConnectTimeout
from tfps.launch.environment import LOG_FILE, task_environment
from tfps.launch.local_cluster import LocalCluster
from tfps.launch.log_folder import LogFolder
from tfps.launch.output import LINE_FILE, LogFollower, prefix_stream, say
from tfps.launch.process import describe_status, start_program
from tfps.launch.received_signals import ReceivedSignals
from tfps.recovery.kept_tasks import KEEPER, SERVERS_RETURN, in_words
from tfps.recovery.restarts import Restarts, check_restarts
from tfps.terminal import SHOW_CURSOR, fresh_line, open_line, share_line
from tfps.units import count_tasks

SERVERS_FILE = ".servers-return"  # made by a script that can use servers started again
LOOK_EVERY_S = 0.1  # at the tasks; also how late the end of the script is noticed
GRACE_S = 10.0  # from the first signal to SIGKILL: time to write a last checkpoint
START_TIMEOUT_S = 300.0


def supervise(
    script: str,
    arguments: Sequence[str],
    *,
    workers: int,
    ps: int,
    log_dir: str | None = None,
    restarts: Restarts | None = None,
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
        restarts: how often a task that dies is started again; None is the default.

    Returns:
        The script's exit status, 128 + n if signal n ended it, 1 if the job could not go on.

    Raises:
        ConfigError: a count is below 1, or `restarts` asks for more workers than there are.
        TaskFailed: a task ended while it started.
        ConnectTimeout: a task did not listen in time.
    """
    check_restarts(restarts, workers=workers)  # before there is a folder
    folder = LogFolder(log_dir, prefix="tfps-run-")
    wanted = folder.path / SERVERS_FILE
    wanted.unlink(missing_ok=True)  # of another job
    well = False
    try:
        with ReceivedSignals() as signals, _kept_terminal():
            with LocalCluster(
                workers=workers, ps=ps, log_dir=folder.path, wait=False, restarts=restarts
            ) as cluster:
                cluster.keeper.say = say
                cluster.keeper.servers_return = wanted.exists
                say(f"starting {count_tasks(workers=workers, ps=ps)}; {folder}")
                follower = LogFollower(cluster.logs, target=2)
                chief = _Chief(cluster, script, arguments)
                try:
                    status = _watch(cluster, chief, signals)
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
        wanted.unlink(missing_ok=True)
        folder.end(well=well)
    if not well and not signals.received:
        say(f"{script} {describe_status(status)}; logs in {folder.path}")
    return status if status >= 0 else 128 - status


class _Chief:
    """The script as a child process, with this process's terminal or with prefixed pipes."""

    def __init__(self, cluster: LocalCluster, script: str, arguments: Sequence[str]) -> None:
        log_path = cluster.log_dir / "chief-0.log"
        pipes = [None if os.isatty(number) else subprocess.PIPE for number in (1, 2)]
        self._line = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as the script runs
        share_line(self._line.fileno())
        extra = {
            LOG_FILE: str(log_path),
            LINE_FILE: str(self._line.fileno()),
            KEEPER: str(os.getpid()),
            SERVERS_RETURN: str(cluster.log_dir / SERVERS_FILE),
        }
        self.process = start_program(
            name="chief",
            command=[sys.executable, "-P", "-m", "tfps", "run", script, *arguments],
            environment=task_environment(cluster.spec, "chief", 0, extra=extra),
            log_path=log_path,
            stdin=None,
            stdout=pipes[0] or 1,
            stderr=pipes[1] or 2,
            pass_fds=[self._line.fileno()],
        )
        streams = ((self.process.output, 1), (self.process.errors, 2))
        self._threads = [
            prefix_stream("chief", source, target=target) for source, target in streams if source
        ]

    def stop(self) -> None:
        """End it if it still runs, with all that it started, and write its last lines."""
        self.process.kill()
        for thread in self._threads:
            thread.join()
        open_line(fresh_line() != "")  # from now on this process knows it alone
        share_line(None)
        self._line.close()


def _watch(cluster: LocalCluster, chief: _Chief, signals: ReceivedSignals) -> int:
    """Return the chief's status once it ended; end it where the job cannot go on.

    Signals are passed on.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    starting = dict.fromkeys(cluster.spec.tasks("worker", "ps"), "")
    ends_at = math.inf
    passed_on = 0
    while (status := chief.process.status()) is None:
        if starting:
            for failure in cluster.failures():
                raise failure
            starting = _still_starting(cluster, starting, deadline=deadline)
        if (end := cluster.keeper.ended) and ends_at == math.inf:
            say(f"the job cannot go on: {end.reason}")
            ends_at = time.monotonic() + (GRACE_S if end.is_noticed else 0.0)
        if time.monotonic() >= ends_at:
            chief.process.kill()
            return 1
        if len(signals.received) > passed_on:
            number = signals.received[passed_on]
            passed_on = len(signals.received)
            if passed_on > 1 or _gone(chief, number):
                chief.process.kill()
            else:
                if number == signal.SIGINT and os.isatty(2):
                    open_line(True)  # which a terminal begins with ^C
                name = signal.Signals(number).name
                say(f"{name}: stopping (once more: at once); logs in {cluster.log_dir}")
        if signals.received and time.monotonic() - signals.first_at > GRACE_S:
            say(f"the script still runs after {GRACE_S:g} s; ending it")
            chief.process.kill()
        time.sleep(LOOK_EVERY_S)
    return -signals.received[0] if signals.received and status < 0 else status


def _still_starting(
    cluster: LocalCluster, tasks: dict[tuple[str, int, str], str], *, deadline: float
) -> dict[tuple[str, int, str], str]:
    """Those of some tasks that do not listen yet; their deaths are the keeper's from then on."""
    missing = missing_tasks(tasks)
    if not missing:
        cluster.keeper.mark_started()
    elif time.monotonic() > deadline:
        names = ", ".join(f"{kind} {index}" for kind, index, _ in missing)
        raise ConnectTimeout(
            f"{names} did not listen within {START_TIMEOUT_S:g} s; logs: {cluster.log_dir}"
        )
    return missing


def _gone(chief: _Chief, number: int) -> bool:
    """Pass a signal on to the chief; return whether it ended before."""
    chief.process.send(number)
    return chief.process.status() is not None


@contextlib.contextmanager
def _kept_terminal() -> Iterator[None]:
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
