"""`tfps.FaultTolerance`: how a job reacts to tasks that die, hang or do not return."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tfps.errors import ConfigError, refuse

FIRST_BACK_OFF_S = 0.25  # a cause by chance does not come twice
LONGEST_BACK_OFF_S = 30.0

OnLostServer = Literal["wait", "stop"]


@dataclass(frozen=True, kw_only=True)
class FaultTolerance:
    """The policy for dead tasks: how often to restart them, and what to do without a server.

    Pass the same object to `ParameterServerStrategy` and to `LocalCluster`. Restarts are on by
    default and need no checkpoint: the program that started the tasks starts them again
    (`LocalCluster`, `tfps run`, `tfps train`, `tfps supervise`). A strategy, which cannot start
    tasks of other machines, waits for them.

    With `checkpoints`, training goes on after a lost parameter server has been started again, at
    the address that the scheduler or the cluster resolver gives. Its variables come from
    the newest checkpoint that this job has saved or restored; the counts of updates and of tickets
    come from the other servers, so that no example is repeated or skipped. The updates that the
    restored rows lack are counted in `stats().updates_lost`. Under `tfps.Synchronous` all servers
    go back to the checkpoint instead, `fit` repeats the steps since then, and nothing is lost;
    scheduled functions end with an error that names the newest checkpoint.

    Args:
        checkpoints: the folder for checkpoints of the trained model. `fit` saves them there itself;
            a `CheckpointManager` that you make for this folder is used from then on. None: the
            loss of a server ends the training.
        every_steps: the steps between two checkpoints; `fit` also saves when it begins and after a
            warm-up. Under `tfps.Synchronous` with a `CheckpointManager`, scheduled functions count
            as steps too, and a checkpoint is saved before the first. None: save with
            `tfps.callbacks.Checkpoint`, or by calling ``save``.
        on_lost_server: ``"wait"`` until it is started again, or ``"stop"`` with an error.
        restart_budget: how often each task may be started again; 0 for never. The pause before each
            restart doubles: 0.25 s, 0.5 s, at most 30 s.
        min_workers: the least number of workers; with fewer left the job ends.
        no_worker_timeout_s: the seconds that fewer than `min_workers` workers may reply before the
            job ends, while others can still return; `math.inf` waits for ever. A task of this
            machine that stays stopped (SIGSTOP) this long is killed and started again.
        hang_timeout_s: the seconds that a task of this machine may hang, neither stopped nor
            replying, after it was found lost; then it is killed and started again. `math.inf`
            never kills. The default is longer than a swapping machine needs to recover.

    Raises:
        ConfigError: values are invalid; names every mistake.

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
            problems.append(
                f"every_steps: received {self.every_steps!r} without checkpoints, expected both; "
                "set checkpoints"
            )
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
        """Return the pause in seconds before a task's restart with the number ``number``.

        Args:
            number: the number of the restart, from 1.
        """
        return min(FIRST_BACK_OFF_S * 2.0 ** min(number - 1, 30), LONGEST_BACK_OFF_S)

    def patience_s(self, *, is_stopped: bool) -> float:
        """Return how many seconds a task of this machine may hang.

        Args:
            is_stopped: whether it was stopped (SIGSTOP), so that SIGCONT can resume it.
        """
        return self.no_worker_timeout_s if is_stopped else self.hang_timeout_s

    def size_problems(self, *, workers: int) -> list[str]:
        """Return a sentence for each value that does not fit the size of a cluster.

        Args:
            workers: the number of workers of the cluster.
        """
        if self.min_workers <= workers:
            return []
        return [
            f"min_workers: received {self.min_workers}, expected at most {workers}, the number "
            "of workers of the cluster"
        ]


def check_fault_tolerance(
    fault_tolerance: FaultTolerance | None, *, workers: int | None
) -> FaultTolerance:
    """Check a ``fault_tolerance`` argument against the cluster; return it, or the default for None.

    Args:
        fault_tolerance: the argument as the user gave it.
        workers: the cluster's number of workers; None: not known.

    Raises:
        ConfigError: it is of another type, or requires more workers than the cluster has.
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
