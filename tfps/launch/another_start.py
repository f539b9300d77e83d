"""Decides whether another start of a chief's script would help after the loss of a task."""

from __future__ import annotations

import enum
import sys

from tfps.errors import ClusterError
from tfps.terminal import write_message


class AnotherStart(enum.Enum):
    """Names the state from which another start of a script would go on."""

    CHECKPOINT = "the newest checkpoint"
    JOB = "the named job, if no server was started anew"


def decide_another_start(error: BaseException, *, has_servers: bool = True) -> AnotherStart | None:
    """Return the state from which another start would go on, or None if it would not help.

    A lost task is not a mistake of the script: it goes on from a checkpoint if it restores one when
    it starts, or from the servers' variables of a named job. Any other error would happen again.

    Args:
        error: the error that has ended the script, or a `ClusterError` that was raised from it.
        has_servers: whether the servers still have their variables.
    """
    if "tensorflow" not in sys.modules:
        return None
    import tensorflow as tf

    from tfps.bridge.closures.closure_error import is_task_failure
    from tfps.checkpoint.next_start import next_checkpoint
    from tfps.strategy.named_job import has_open_job

    if isinstance(error, ClusterError):
        error = error.__cause__ or error
    if not (isinstance(error, tf.errors.UnavailableError) or is_task_failure(error)):
        return None
    if path := next_checkpoint():
        write_message(f"a task was lost; run the script again to resume from {path}")
        return AnotherStart.CHECKPOINT
    if has_servers and has_open_job():
        write_message(
            "a task was lost; run the script again to resume with the state of the servers"
        )
        return AnotherStart.JOB
    return None
