"""`tfps scheduler`: runs the scheduler of one job until the job ends."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from functools import partial

from tfps.cluster import timeout_from_environment
from tfps.cluster.address import address_problem
from tfps.cluster.timeout import CHIEF_TIMEOUT_S, DEFAULT_CHIEF_TIMEOUT_S
from tfps.errors import ConfigError
from tfps.launch.serving import ServiceEnd, end_at_once
from tfps.package_versions import task_versions
from tfps.scheduler.places import Places
from tfps.scheduler.server import SchedulerServer
from tfps.stop_signals import STOP_SIGNALS
from tfps.transport.direct.secret import secret_from_environment
from tfps.units import count_tasks

NAME = "scheduler"


def run_scheduler(address: str, *, workers: int, servers: int) -> int:
    """Serve the tasks of a job until it ends; return the exit status that its tasks have.

    Args:
        address: where the scheduler listens, as ``host:port``.
        workers: the number of workers.
        servers: the number of parameter servers.

    Raises:
        ConfigError: the address or an environment variable is invalid.
        ListenError: it cannot listen at the address.
    """
    if problem := address_problem(address):
        raise ConfigError(f"--listen: {problem}")
    timeout_s = timeout_from_environment(CHIEF_TIMEOUT_S, default_s=DEFAULT_CHIEF_TIMEOUT_S)
    end = ServiceEnd()
    server = SchedulerServer(
        address,
        Places.of_cluster(workers=workers, servers=servers, started_s=time.monotonic()),
        secret=secret_from_environment() or b"",
        versions=task_versions(),
        report=_say,
        on_end=end.record_status,
    )
    for number in STOP_SIGNALS:
        signal.signal(number, partial(end_at_once, NAME))
    _say(f"waits at {address} for 1 chief, {count_tasks(workers=workers, ps=servers)}")
    status = end.wait(str, chief_timeout_s=timeout_s, is_alive=lambda: server.has_chief)
    server.end(status)
    _say(f"ends with status {status}: {end.reason}")
    return status


def _say(text: str) -> None:
    """Write a line, if the output can be written: its reader may be gone, or the disk full."""
    line = f"tfps: {NAME}: {text}\n".encode(errors="backslashreplace")
    with contextlib.suppress(OSError):
        os.write(sys.stdout.fileno(), line)  # a buffer would keep it, and fail again at the end
