"""Local steps: workers train their own copies for a period, and then send the differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tfps.consistency.mode import Mode
from tfps.consistency.warm_up import warm_up_problems
from tfps.errors import refuse


@dataclass(frozen=True)
class LocalSteps(Mode):
    """The mode in which workers train their own copies for some steps, then send the differences.

    Use it for slow networks, and for models whose step is short compared to an exchange with the
    servers: one exchange serves several steps. The more steps, the further the workers' parameters
    drift apart in between.

    - By default a worker sends its difference when it has one, and servers add it, divided by the
      number of workers (Geo-SGD). With one worker the numbers are those of one process.
    - ``synchronous_periods=True``: all workers meet, and the mean of their differences, weighted by
      examples, is added once (local SGD). With ``period_steps=1`` and plain SGD these are the
      numbers of `tfps.Synchronous()`.
    - ``elasticity``: worker and servers pull each other closer by this fraction of the distance
      between them, and each keeps the rest (elastic averaging).

    Momenta and other slots stay on the worker. They start anew when its process joins, and
    checkpoints do not have them. ``optimizer.iterations`` grows by the steps of each difference
    that is added; a learning rate schedule uses that number, a bias correction the worker's own.
    Steps, epochs and the progress bar count every worker's steps. A worker holds the parameters
    twice, and the slots.

    In a custom loop each optimizer call of a scheduled function is a step. A period ends after
    ``period_steps`` of them, and with the function, which begins with the servers' weights.

    Source: Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019; Zhang, Choromanska
    and LeCun, "Deep Learning with Elastic Averaging SGD", NeurIPS 2015; Geo-SGD as in Paddle.

    Args:
        period_steps: the number of a worker's steps between two exchanges.
        synchronous_periods: whether all workers meet at the end of a period.
        elasticity: the fraction of the distance by which worker and servers move towards each
            other, from 0 to 1, both excluded (alpha in the paper, which takes about 0.9 divided by
            the number of workers); None: the worker takes over the servers' parameters.
        warm_up_steps: the number of steps of `fit` that each worker first takes on its own copy of
            the weights, before all continue from the mean; see `tfps.consistency.warm_up`.

    Raises:
        ConfigError: a number out of range, or an elasticity of synchronous periods.

    Example:

    >>> LocalSteps(period_steps=16)
    LocalSteps(period_steps=16, synchronous_periods=False, elasticity=None, warm_up_steps=0)
    """

    period_steps: int
    synchronous_periods: bool = False
    elasticity: float | None = None
    warm_up_steps: int = 0

    def __post_init__(self) -> None:
        problems = warm_up_problems(self.warm_up_steps)
        steps = self.period_steps
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
            problems.append(
                f"period_steps: received {steps!r}, expected a whole number from 1: the steps "
                "that a worker takes between two exchanges"
            )
        if self.elasticity is not None and not _is_fraction(self.elasticity):
            problems.append(
                f"elasticity: received {self.elasticity!r}, expected a number between 0 and 1, "
                "such as 0.9 divided by the number of workers, or None"
            )
        if self.elasticity is not None and self.synchronous_periods:
            problems.append(
                f"elasticity: received {self.elasticity!r} with synchronous_periods=True, "
                "expected None: all workers then continue from the mean of their weights"
            )
        refuse(problems, source="LocalSteps")

    @property
    def backup_workers(self) -> int | None:
        """The number of workers for which a round does not wait; None: without rounds."""
        return 0 if self.synchronous_periods else None


def _is_fraction(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1


def period_steps_of(mode: Any) -> int:
    """Return the number of a worker's steps per exchange.

    Example:

    >>> period_steps_of(LocalSteps(16))
    16
    """
    return mode.period_steps if isinstance(mode, LocalSteps) else 1
