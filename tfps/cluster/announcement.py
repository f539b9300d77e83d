"""The chief's last message, which tells every task how the job ended, so that the task ends too."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
from collections.abc import Callable

import numpy as np

from tfps.cluster.exit_status import exit_status, watch_exit
from tfps.cluster.introduction import ask_one, this_chief
from tfps.cluster.moves import get_current_cluster
from tfps.cluster.served_chief import ChiefIdentity, Question
from tfps.cluster.spec import ClusterSpec
from tfps.cluster.task_call import UnknownFunction, call_task
from tfps.cluster.waiting import Task, accepts_connections, connection_problem

logger = logging.getLogger(__name__)

FINISHED_FUNCTION = "tfps_finished"  # the name of the function that a task registers for it
SUPERVISED = "TFPS_SUPERVISED"  # set if the command that starts all tasks also ends them
REPLY_TIMEOUT_S = 5.0  # a task replies within milliseconds, even on a busy machine
REACH_TIMEOUT_S = 1.0

_listeners: list[Callable[[int], object]] = []
_registered_by: int | None = None  # the process id, because a fork inherits the registration


def announce_finished(spec: ClusterSpec, status: int) -> list[str]:
    """Tell all workers and parameter servers that the job has ended, so that they end too.

    A task of tfps ends with the job's status if that is 0, or 75 (all tasks shall restart),
    otherwise with 1. A plain `tf.distribute.Server` does not know the message and continues. The
    message needs no connected strategy; send it after the last use of the servers. A task that
    serves another running chief does not get it, since its job continues.

    Args:
        spec: the cluster; for tasks that have moved since, the current addresses are used.
        status: the exit status of the chief's script.

    Returns:
        The names of the tasks that accepted the message.
    """
    for listener in _listeners:
        with contextlib.suppress(OSError):  # it is no task, and may have ended
            listener(status)
    informed = []
    # One after the other, since no thread can be started while the interpreter ends.
    for task_type, index, address in get_current_cluster(spec).tasks("worker", "ps"):
        name = f"{task_type} {index}"
        problem = connection_problem(address, timeout_s=REACH_TIMEOUT_S)
        problem = problem or report_end_to_task((task_type, index, address), status)
        if problem is None:
            informed.append(name)
        else:
            logger.debug("cannot tell %s at %s that the job has ended: %s", name, address, problem)
    return informed


def register_listener(listener: Callable[[int], object]) -> None:
    """Let `announce_finished` call a function with the status, such as one that tells a scheduler.

    Args:
        listener: the function; an `OSError` of it is ignored.
    """
    _listeners.append(listener)


def announce_at_exit(spec: ClusterSpec) -> None:
    """Announce the end of the job when this process, a plain ``python script.py``, ends.

    Functions registered with `atexit` after this call can still use the servers. Nothing is sent by
    a forked child, or if the command that started all tasks also ends them.
    """
    global _registered_by
    if _registered_by == os.getpid() or os.environ.get(SUPERVISED):
        return
    _registered_by = os.getpid()
    watch_exit()
    atexit.register(_announce_own_end, spec, os.getpid())


def _announce_own_end(spec: ClusterSpec, process: int) -> None:
    if os.getpid() == process:
        announce_finished(spec, exit_status())


def report_end_to_task(task: Task, status: int) -> str | None:
    """Tell a task how the job ended, in a separate session; return the problem, or None."""
    import tensorflow as tf

    try:
        reply = ask_one(task, Question(this_chief()))
        if reply is not None and (chief := reply.serves) and _is_another_process(chief):
            return f"it serves {chief}"
        call_task(
            task,
            FINISHED_FUNCTION,
            np.int32(status),
            returns=np.int32(1),
            timeout_s=REPLY_TIMEOUT_S,
        )
    except UnknownFunction as error:
        return str(error)
    except tf.errors.OpError as error:
        return f"{type(error).__name__}: {error.message.splitlines()[0] if error.message else ''}"
    return None


def _is_another_process(chief: ChiefIdentity) -> bool:
    """Return whether a chief is another process, and still runs."""
    if chief.process == this_chief().process:
        return False
    return not chief.address or accepts_connections(chief.address, timeout_s=REACH_TIMEOUT_S)
