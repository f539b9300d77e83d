"""Waits until the tasks of a cluster accept connections, and reports the missing ones."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from tfps.cluster.address import split_address
from tfps.cluster.spec import ClusterSpec
from tfps.errors import ConnectTimeout

CONNECT_TIMEOUT_S = 300.0  # a scheduler may start the tasks of one job minutes apart
REPORT_INTERVAL_S = 10.0
ATTEMPT_TIMEOUT_S = 2.0  # for one TCP connect; hosts that drop packets never respond
FIRST_PAUSE_S = 0.05  # tasks on this machine listen within seconds, so try often at first
LONGEST_PAUSE_S = 1.0
MAX_PARALLEL_ATTEMPTS = 32  # a task behind a firewall that drops packets takes a whole attempt

Task = tuple[str, int, str]


def wait_for_tasks(
    spec: ClusterSpec,
    *,
    timeout_s: float = CONNECT_TIMEOUT_S,
    report: Callable[[str], None] | None = None,
    task_types: Iterable[str] = ("worker", "ps"),
    index: int | None = None,
    check: Callable[[], None] | None = None,
) -> None:
    """Wait until every worker and parameter server accepts connections.

    A name that does not resolve yet is tried again, since schedulers create the names of a job's
    tasks one by one.

    Args:
        spec: the cluster.
        timeout_s: the time limit for all tasks.
        report: called every 10 s with a sentence that lists the missing tasks.
        task_types: the types of tasks to wait for.
        index: the index of the only task of each type to wait for; None for all.
        check: called before every attempt; raises to stop waiting, for example if a task died.

    Raises:
        ConnectTimeout: some tasks are still missing; the message lists each with the reason.
    """
    started = time.monotonic()
    next_report = started + REPORT_INTERVAL_S
    pauses = pauses_s()
    tasks = [task for task in spec.tasks(*task_types) if index in (None, task[1])]
    missing = dict.fromkeys(tasks, "no attempt yet")
    while True:
        if check is not None:
            check()
        missing = missing_tasks(missing)
        now = time.monotonic()
        if not missing:
            return
        if now - started >= timeout_s:
            raise ConnectTimeout(_timeout_error_text(missing, timeout_s))
        if report is not None and now >= next_report:
            report(
                f"waiting for {_format_names(missing)} ({now - started:.0f} s of {timeout_s:.0f} s)"
            )
            next_report = now + REPORT_INTERVAL_S
        time.sleep(max(0.0, min(next(pauses), timeout_s - (now - started))))


def pauses_s() -> Iterator[float]:
    """Yield the seconds to wait between attempts to reach a task, longer each time."""
    pause = FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(LONGEST_PAUSE_S, pause * 1.5)


def missing_tasks(tasks: Iterable[Task]) -> dict[Task, str]:
    """Return the tasks that accept no connection now, each with the reason."""
    asked = tuple(tasks)
    if not asked:
        return {}
    with ThreadPoolExecutor(min(MAX_PARALLEL_ATTEMPTS, len(asked))) as pool:
        reasons = pool.map(lambda task: connection_problem(task[2]), asked)
        return {task: reason for task, reason in zip(asked, reasons, strict=True) if reason}


def accepts_connections(address: str, *, timeout_s: float = ATTEMPT_TIMEOUT_S) -> bool:
    """Return whether a process accepts connections at an address."""
    return connection_problem(address, timeout_s=timeout_s) is None


def connection_problem(address: str, *, timeout_s: float = ATTEMPT_TIMEOUT_S) -> str | None:
    """Connect to an address over TCP; return the reason of a failure, or None."""
    host, port = split_address(address)
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            # A connection to an unused loopback port may by chance connect to itself.
            if connection.getsockname() == connection.getpeername():
                return "connection refused"
    except socket.gaierror as error:
        return f"cannot resolve the name {host} ({error.strerror})"
    except TimeoutError:
        return f"no response within {timeout_s:g} s"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return None


def _format_names(missing: Iterable[Task]) -> str:
    return ", ".join(f"{kind} {index} at {address}" for kind, index, address in missing)


def _timeout_error_text(missing: dict[Task, str], timeout_s: float) -> str:
    count = f"{len(missing)} task{'s' if len(missing) > 1 else ''}"
    lines = [
        f"  - {kind} {index} at {address}: {reason}"
        for (kind, index, address), reason in missing.items()
    ]
    return "\n".join(
        [
            f"{count} of the cluster did not accept connections within {timeout_s:g} s:",
            *lines,
            "Start the missing tasks, check their addresses in TF_CONFIG and the firewall, or "
            "increase connect_timeout_s.",
        ]
    )
