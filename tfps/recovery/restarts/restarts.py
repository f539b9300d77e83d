"""`tfps.Restarts`: how often dead tasks are started again, and when a job ends without them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tfps.errors import ConfigError
from tfps.units import counted

FIRST_BACK_OFF_S = 0.25  # what killed a task by chance does not come twice
LONGEST_BACK_OFF_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Restarts:
    """How often tasks that died are started again, and when a job ends for want of workers.

    It holds by default and needs no checkpoint. Whoever has started tasks starts them again:
    `LocalCluster`, `tfps run`, `tfps train` and `tfps supervise`. A strategy, which cannot start
    tasks of other machines, waits for them.

    Args:
        budget: how often each task is started again; 0 for never. Before each time it waits twice
            as long as before the last one: 0.25 s, 0.5 s, at most 30 s.
        min_workers: with fewer workers left the job ends instead of going on.
        no_worker_timeout_s: so long fewer than `min_workers` may answer before the job ends, where
            they can still return; `math.inf` waits for ever. A task of this machine that somebody
            has stopped (SIGSTOP) for so long is killed and started again.
        hang_timeout_s: a task of this machine that nobody has stopped, and that answers nothing for
            so long after it was found lost, is killed and started again; `math.inf` never does. A
            machine that swaps comes back within it, and a restart costs seconds.

    Raises:
        ConfigError: a number that cannot work; every mistake, at once.

    Example:

    >>> restarts = Restarts(budget=5, min_workers=2)
    >>> [restarts.back_off_s(number) for number in (1, 2, 3)]
    [0.25, 0.5, 1.0]
    """

    budget: int = 3
    min_workers: int = 1
    no_worker_timeout_s: float = 600.0
    hang_timeout_s: float = 60.0

    def __post_init__(self) -> None:
        problems = [
            f"{name}: received {value!r}, expected a whole number from {least}"
            for name, value, least in (
                ("budget", self.budget, 0),
                ("min_workers", self.min_workers, 1),
            )
            if not isinstance(value, int) or isinstance(value, bool) or value < least
        ]
        problems += [
            f"{name}: received {value!r}, expected a number of seconds above 0"
            for name, value in (
                ("no_worker_timeout_s", self.no_worker_timeout_s),
                ("hang_timeout_s", self.hang_timeout_s),
            )
            if not isinstance(value, (int, float)) or math.isnan(value) or value <= 0
        ]
        if problems:
            raise ConfigError(problems, source="Restarts")

    def back_off_s(self, number: int) -> float:
        """How long a task rests before it is started again for the n-th time.

        Args:
            number: 1 for the first time.
        """
        return min(FIRST_BACK_OFF_S * 2.0 ** min(number - 1, 30), LONGEST_BACK_OFF_S)

    def patience_s(self, *, is_stopped: bool) -> float:
        """How long a task of this machine may hang.

        Args:
            is_stopped: whether somebody has stopped it, who may let it go on.
        """
        return self.no_worker_timeout_s if is_stopped else self.hang_timeout_s

    def size_problems(self, *, workers: int) -> list[str]:
        """Return what cannot be with a cluster of so many workers."""
        if self.min_workers <= workers:
            return []
        return [
            f"min_workers: received {self.min_workers}, and the cluster has "
            f"{counted(workers, 'worker')}; expected at most as many"
        ]


def check_restarts(restarts: Restarts | None, *, workers: int | None) -> Restarts:
    """Return what somebody has given as ``restarts``, or the default, if it fits a cluster.

    Args:
        restarts: as it was given.
        workers: how many the cluster has; None: nobody knows.

    Raises:
        ConfigError: it is something else, or asks for more workers than there are.
    """
    if restarts is None:
        return Restarts()
    if not isinstance(restarts, Restarts):
        raise ConfigError(
            f"restarts: received {restarts!r}, expected a tfps.Restarts such as "
            "tfps.Restarts(budget=3), or None for the default"
        )
    if workers is not None and (problems := restarts.size_problems(workers=workers)):
        raise ConfigError(problems, source="Restarts")
    return restarts
