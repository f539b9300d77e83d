"""Ask tasks which chief they serve, before anything is changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from tfps.cluster.served_chief import (
    INTRODUCE_FUNCTION,
    ChiefIdentity,
    Introduction,
    Question,
    name_process,
)
from tfps.cluster.task_call import UnknownFunction, call_task
from tfps.cluster.waiting import MAX_PARALLEL_ATTEMPTS, Task

REPLY_TIMEOUT_S = 5.0  # a task replies within milliseconds, even on a busy machine


def this_chief(address: str = "", *, job: str = "", is_ready: bool = False) -> ChiefIdentity:
    """Return the name of this process as a chief.

    Args:
        address: the address of its server.
        job: the name of its job, if it has one.
        is_ready: whether its server listens.
    """
    return ChiefIdentity(name_process(os.getpid()), address, job, is_ready)


def ask(
    tasks: Iterable[Task], question: Question, *, timeout_s: float = REPLY_TIMEOUT_S
) -> Mapping[Task, Introduction | None]:
    """Ask several tasks in parallel which chief they serve; None for tasks without that function.

    Args:
        tasks: the tasks.
        question: the question, the same for all.
        timeout_s: the time limit per task.

    Raises:
        tf.errors.OpError: a task did not reply.
    """
    asked = list(tasks)
    with ThreadPoolExecutor(max(1, min(MAX_PARALLEL_ATTEMPTS, len(asked)))) as pool:
        introductions = list(pool.map(lambda t: ask_one(t, question, timeout_s=timeout_s), asked))
    return dict(zip(asked, introductions, strict=True))


def ask_one(
    task: Task, question: Question, *, timeout_s: float = REPLY_TIMEOUT_S
) -> Introduction | None:
    """Ask one task on this thread; see `ask`."""
    text = question.to_json().encode()
    try:
        reply = call_task(task, INTRODUCE_FUNCTION, text, returns=b"", timeout_s=timeout_s)
    except UnknownFunction:
        return None
    return Introduction.from_json(bytes(reply).decode())
