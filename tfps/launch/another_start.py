"""Whether another start of a chief's script would go on where a lost task has ended this one."""

from __future__ import annotations

import enum
import sys

from tfps.errors import ClusterError
from tfps.terminal import say


class AnotherStart(enum.Enum):
    """What another start would go on from."""

    CHECKPOINT = "the newest checkpoint"
    JOB = "the named job, if no server was started anew"


def another_start(error: BaseException, *, has_servers: bool = True) -> AnotherStart | None:
    """Return what another start would go on from; None where it would help nothing.

    A lost task is no mistake of the script, which goes on from a checkpoint if it looks for one
    when it starts, or from what the servers hold of a named job. Any other error would come again.

    Args:
        error: what has ended the script; or a `ClusterError` that says so in other words.
        has_servers: whether the servers still hold what they held.
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
        say(f"a task was lost; another start of the script goes on from {path}")
        return AnotherStart.CHECKPOINT
    if has_servers and has_open_job():
        say("a task was lost; another start of the script goes on with what the servers hold")
        return AnotherStart.JOB
    return None
