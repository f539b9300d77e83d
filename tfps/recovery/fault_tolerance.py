"""`tfps.FaultTolerance`: what a job does about tasks that die, hang or stay away."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tfps.errors import ConfigError, refuse
from tfps.units import counted

FIRST_BACK_OFF_S = 0.25  # what killed a task by chance does not come twice
LONGEST_BACK_OFF_S = 30.0

OnLostServer = Literal["wait", "stop"]


@dataclass(frozen=True, kw_only=True)
class FaultTolerance:
    """How often dead tasks are started again, and what becomes of a lost parameter server.

    One object serves both `ParameterServerStrategy` and `LocalCluster`. Restarts hold by default
    and need no checkpoint: who has started tasks starts them again (`LocalCluster`, `tfps run`,
    `tfps train`, `tfps supervise`), and a strategy, which cannot start tasks of other machines,
    waits for them.

    With `checkpoints`, training goes on after a parameter server was lost and has been started
    again, where the cluster resolver or ``TFPS_CLUSTER_FILE`` says. Its own variables come from the
    newest checkpoint that this job has saved or restored, the count of updates and of tickets from
    the servers that lived: no example is repeated or skipped. What the restored rows lack is
    counted, in `stats().updates_lost`. Under `tfps.Synchronous` all servers go back together
    instead, steps of `fit` since then are repeated, and nothing is lost; scheduled functions end
    with an error that names the newest checkpoint.

    Args:
        checkpoints: a folder for checkpoints of the model that is trained: `fit` keeps them there
            itself, and a `CheckpointManager` made for that folder is used from then on. None: the
            loss of a server ends the training.
        every_steps: the steps between two checkpoints: `fit` also saves when it begins and after a
            warm-up. Under `tfps.Synchronous` with a `CheckpointManager`, scheduled functions count
            as well, and the first is preceded by a checkpoint. None: your own
            `tfps.callbacks.Checkpoint`, or calls of ``save``, save.
        on_lost_server: ``"wait"`` until it is started again, or ``"stop"`` with an error.
        restart_budget: how often each task is started again; 0 for never. Before each time it waits
            twice as long as before the last one: 0.25 s, 0.5 s, at most 30 s.
        min_workers: with fewer workers left the job ends instead of going on.
        no_worker_timeout_s: how long fewer than `min_workers` may answer before the job ends, where
            they can still return; `math.inf` waits for ever. A task of this machine that was
            stopped (SIGSTOP) as long is killed and started again.
        hang_timeout_s: a task of this machine that is not stopped, and that answers nothing for
            as long after it was found lost, is killed and started again; `math.inf` never does. A
            machine that swaps comes back within it, and a restart costs seconds.

    Raises:
        ConfigError: values that cannot work; every mistake, at once.

    Example:

    >>> fault_tolerance = FaultTolerance(checkpoints="checkpoints", restart_budget=5)
    >>> [fault_tolerance.back_off_s(number) for number in (1, 2, 3)]
    [0.25, 0.5, 1.0]
    """

    checkpoints: str | os.PathLike[str] | None = None
    every_steps: int | None = None
    on_lost_server: OnLostServer = "wait"
    restart_budget: int = 3
    min_workers: int = 1
    no_worker_timeout_s: float = 600.0
    hang_timeout_s: float = 60.0

    def __post_init__(self) -> None:
        problems = []
        folder: Any = self.checkpoints
        if not isinstance(folder, str | os.PathLike | None):
            problems.append(f"checkpoints: received {folder!r}, expected a folder")
        problems += [
            f"{name}: received {value!r}, expected a whole number from {least}"
            for name, value, least in (
                ("every_steps", 1 if self.every_steps is None else self.every_steps, 1),
                ("restart_budget", self.restart_budget, 0),
                ("min_workers", self.min_workers, 1),
            )
            if not isinstance(value, int) or isinstance(value, bool) or value < least
        ]
        if self.every_steps is not None and self.checkpoints is None:
            problems.append(f"every_steps: received {self.every_steps!r} without checkpoints")
        if self.on_lost_server not in get_args(OnLostServer):
            problems.append(
                f'on_lost_server: received {self.on_lost_server!r}, expected "wait" or "stop"'
            )
        problems += [
            f"{name}: received {value!r}, expected a number of seconds above 0"
            for name, value in (
                ("no_worker_timeout_s", self.no_worker_timeout_s),
                ("hang_timeout_s", self.hang_timeout_s),
            )
            if not isinstance(value, (int, float)) or math.isnan(value) or value <= 0
        ]
        refuse(problems, source="tfps.FaultTolerance")

    def back_off_s(self, number: int) -> float:
        """How long a task rests before it is started again for the n-th time.

        Args:
            number: 1 for the first time.
        """
        return min(FIRST_BACK_OFF_S * 2.0 ** min(number - 1, 30), LONGEST_BACK_OFF_S)

    def patience_s(self, *, is_stopped: bool) -> float:
        """How long a task of this machine may hang.

        Args:
            is_stopped: whether it was stopped (SIGSTOP), and may be let go on.
        """
        return self.no_worker_timeout_s if is_stopped else self.hang_timeout_s

    def size_problems(self, *, workers: int) -> list[str]:
        """Return what does not fit a cluster of this size."""
        if self.min_workers <= workers:
            return []
        return [
            f"min_workers: received {self.min_workers}, and the cluster has "
            f"{counted(workers, 'worker')}; expected at most as many"
        ]


def check_fault_tolerance(
    fault_tolerance: FaultTolerance | None, *, workers: int | None
) -> FaultTolerance:
    """Return a ``fault_tolerance`` argument, or the default, if it fits a cluster.

    Args:
        fault_tolerance: as it was given.
        workers: how many the cluster has; None: not known.

    Raises:
        ConfigError: it is something else, or asks for more workers than there are.
    """
    if fault_tolerance is None:
        return FaultTolerance()
    if not isinstance(fault_tolerance, FaultTolerance):
        raise ConfigError(
            f"fault_tolerance: received {fault_tolerance!r}, expected a tfps.FaultTolerance such "
            'as tfps.FaultTolerance(checkpoints="checkpoints"), or None for the default'
        )
    if workers is not None and (problems := fault_tolerance.size_problems(workers=workers)):
        raise ConfigError(problems, source="tfps.FaultTolerance")
    return fault_tolerance
