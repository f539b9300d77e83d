"""Take the tasks of a cluster for this chief, unless they serve another living chief."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf

from tfps.bridge.closures.connection import get_own_server_port
from tfps.cluster import ClusterSpec, accepts_connections, has_clients
from tfps.cluster.introduction import REPLY_TIMEOUT_S, ask, ask_one, this_chief
from tfps.cluster.listening import address_towards
from tfps.cluster.served_chief import ChiefIdentity, Introduction, Question
from tfps.cluster.task_call import UnknownFunction, call_task
from tfps.cluster.waiting import Task
from tfps.errors import ConfigError, ConnectTimeout, TasksInUse
from tfps.package_versions import task_versions, version_differences
from tfps.recovery.probing.liveness import ProbePolicy
from tfps.recovery.probing.probe import observe_once
from tfps.transport import tokens

# The longest time from a chief's first request until its own server listens; meanwhile a chief that
# has ended looks like one that still starts.
MAX_START_S = 30.0
RETRY_PAUSE_S = 0.5
CHIEF = ("chief", 0)

Introductions = Mapping[Task, Introduction | None]


def take_tasks(
    spec: ClusterSpec, *, job: str, policy: ProbePolicy, timeout_s: float
) -> dict[Task, str]:
    """Make all tasks serve this chief from now on; changes nothing else on them.

    The first server decides between two chiefs that begin at the same moment.

    Returns:
        The name of each task's process; empty for those that tell none.

    Args:
        spec: the cluster.
        job: the job's name; empty for a job without one.
        policy: says when a chief that does not reply counts as gone.
        timeout_s: the seconds that a task may take to reply.

    Raises:
        TasksInUse: the tasks serve another chief.
        ConfigError: tasks have other versions than this process.
        ConnectTimeout: a task accepts connections but does not reply.
    """
    address = spec.address("chief", 0) if "chief" in spec.jobs else ""
    own = this_chief(address, job=job)
    tasks = [*spec.tasks("ps"), *spec.tasks("worker")]
    replies: dict[Task, Introduction | None] = {}
    try:
        for group in (tasks[:1], tasks[1:]):
            replies |= _take(group, own, policy=policy, timeout_s=timeout_s)
        if problems := [
            line for task, reply in replies.items() for line in _version_problems(task, reply)
        ]:
            raise ConfigError([f"{line} {SAME_VERSIONS}" for line in problems])
    except (TasksInUse, ConfigError):
        taken = [task for task in tasks if not has_clients([task[2]])]
        _ask_tasks(taken, Question(own, leaves=True), timeout_s=timeout_s)
        raise
    return {task: reply.process if reply else "" for task, reply in replies.items()}


def confirm_tasks(spec: ClusterSpec, *, job: str, timeout_s: float) -> ChiefIdentity:
    """Tell all tasks this chief's address once its server listens; return its identity.

    Args:
        spec: the cluster.
        job: the job's name; empty for a job without one.
        timeout_s: the seconds that a task may take to reply.

    Raises:
        TasksInUse: another chief has taken the tasks, because this one was too slow.
    """
    tasks = [*spec.tasks("ps"), *spec.tasks("worker")]
    if "chief" in spec.jobs:
        address = spec.address("chief", 0)
    else:
        address = address_towards(tasks[0][2], port=get_own_server_port())
    own = this_chief(address, job=job, is_ready=True)
    others = _tasks_of_other_chiefs(
        _ask_tasks(tasks, Question(own, takes=True), timeout_s=timeout_s), own
    )
    if others:
        raise _tasks_in_use_error(others)
    return own


def take_restarted_task(task: Task, own: ChiefIdentity) -> str:
    """Ask a restarted task to serve this chief; return why it cannot, or an empty string.

    Args:
        task: the task's type, index and address.
        own: this chief's name.
    """
    kind, index, _ = task
    try:
        reply = ask_one(task, Question(own, takes=True))
        lines = _version_problems(task, reply)
    except tf.errors.OpError as error:
        return f"{kind} {index}: received no version of tfps: {error.message}"
    if others := _tasks_of_other_chiefs({task: reply}, own):
        return str(_tasks_in_use_error(others))
    return "".join(f"{line} {SAME_VERSIONS}" for line in lines)


def _version_problems(task: Task, reply: Introduction | None) -> list[str]:
    """Return a sentence if a task's versions of tfps and others differ from this process's."""
    kind, index, address = task
    name = f"{kind} {index} at {address}"
    if reply is None:
        return [f"{name} runs an older tfps."] if _is_of_tfps(task) else []
    if reply.versions.get("tfps") is None:  # it names its versions in another way
        return [f"{name} runs another tfps, which does not say its version."]
    different = version_differences(reply.versions, own=task_versions())
    return [f"{name} runs {', '.join(different)}."] if different else []


def _is_of_tfps(task: Task) -> bool:
    """Return whether a task that does not know the request is a tfps process all the same."""
    try:
        call_task(task, tokens.FINGERPRINT, np.int64(0), returns=b"", timeout_s=REPLY_TIMEOUT_S)
    except UnknownFunction:
        return False
    return True


SAME_VERSIONS = (
    "Give every task the same tfps as the chief, and the same minor versions of TensorFlow, "
    "Keras and Python."
)


def _take(
    tasks: Iterable[Task], own: ChiefIdentity, *, policy: ProbePolicy, timeout_s: float
) -> Introductions:
    ended_process = ""
    while True:
        question = Question(own, takes=True, replaces=ended_process)
        replies = _ask_tasks(tasks, question, timeout_s=timeout_s)
        others = _tasks_of_other_chiefs(replies, own)
        if not others:
            return replies
        chief, since_s = next(iter(others.values()))
        if not chief.is_ready and since_s < MAX_START_S:
            time.sleep(RETRY_PAUSE_S)
        elif chief.address and _is_alive(chief.address, policy):
            raise _tasks_in_use_error(others)
        else:
            ended_process = chief.process


def _ask_tasks(tasks: Iterable[Task], question: Question, *, timeout_s: float) -> Introductions:
    try:
        return ask(tasks, question, timeout_s=timeout_s)
    except tf.errors.OpError as error:
        names = ", ".join(f"{kind} {index} at {address}" for kind, index, address in tasks)
        raise ConnectTimeout(
            f"one of {names} accepts connections but does not reply within {timeout_s:g} s: it "
            "hangs, or is not a TensorFlow server. Check the process. Reported error: "
            f"{error.message}"
        ) from error


def _tasks_of_other_chiefs(
    replies: Introductions, own: ChiefIdentity
) -> dict[Task, tuple[ChiefIdentity, float]]:
    """Return the tasks that serve another chief, with that chief and for how many seconds."""
    return {
        task: (reply.serves, reply.since_s)
        for task, reply in replies.items()
        if reply is not None and reply.serves and reply.serves.process != own.process
    }


def _is_alive(address: str, policy: ProbePolicy) -> bool:
    """Return whether a chief replies to one of several probes."""
    for _ in range(policy.misses):
        seen = observe_once({CHIEF: address}, deadline_s=policy.deadline_s)[CHIEF]
        if seen.replied:
            return True
        if not seen.silent and not accepts_connections(address):
            return False
    return False


def _tasks_in_use_error(others: Mapping[Task, tuple[ChiefIdentity, float]]) -> TasksInUse:
    chief, _ = next(iter(others.values()))
    names = ", ".join(f"{kind} {index} at {address}" for kind, index, address in others)
    return TasksInUse(
        f"these tasks serve {chief}, which is alive: {names}. End that job first, or give this "
        "script other tasks in TF_CONFIG. The tasks are unchanged."
    )
