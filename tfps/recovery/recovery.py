"""`tfps.Recovery`: what a job does when it has lost a parameter server."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tfps.checkpoint.manager import CheckpointManager
from tfps.errors import ConfigError

OnLostServer = Literal["wait", "stop"]


@dataclass(frozen=True)
class Recovery:
    """Lets training go on after a parameter server was lost and has been started again.

    It may be somewhere else then, where the cluster resolver or ``TFPS_CLUSTER_FILE`` says.
    The server's own variables come from the newest checkpoint that this job has saved or restored,
    the count of updates and of tickets from the servers that lived: no example is repeated or
    skipped. What the restored rows lack is counted, in `stats().updates_lost`. Under
    `tfps.Synchronous` all servers go back together instead, steps of `fit` since then are repeated,
    and nothing is lost; scheduled functions end with an error that names the newest checkpoint.

    Args:
        checkpoints: a `CheckpointManager` of the model that is trained, or a folder: the strategy
            then keeps checkpoints of the model that `fit` trains there.
        every_steps: save a checkpoint when `fit` begins, after a warm-up and after so many steps,
            and, under `tfps.Synchronous` with a `CheckpointManager`, before the first scheduled
            function and after so many; None: your own `tfps.callbacks.Checkpoint`, or calls of
            ``save``, do.
        on_lost_server: ``"wait"`` until it is started again, or ``"stop"`` with an error.

    Raises:
        ConfigError: arguments that cannot work; every mistake, at once.

    Example:

    >>> Recovery(checkpoints="checkpoints", every_steps=1000).on_lost_server
    'wait'
    """

    checkpoints: CheckpointManager | str | os.PathLike[str]
    every_steps: int | None = None
    on_lost_server: OnLostServer = "wait"

    def __post_init__(self) -> None:
        problems = []
        checkpoints: Any = self.checkpoints
        if not isinstance(checkpoints, CheckpointManager | str | os.PathLike):
            problems.append(
                f"checkpoints: received {self.checkpoints!r}, expected a tfps.CheckpointManager or "
                "a folder"
            )
        steps: Any = self.every_steps
        if steps is not None and (type(steps) is not int or steps < 1):
            problems.append(f"every_steps: received {steps!r}, expected a whole number from 1")
        if self.on_lost_server not in get_args(OnLostServer):
            problems.append(
                f'on_lost_server: received {self.on_lost_server!r}, expected "wait" or "stop"'
            )
        if problems:
            raise ConfigError(problems, source="tfps.Recovery")
