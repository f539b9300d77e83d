"""Consistency modes: how far a worker may run ahead, and when a server applies a gradient."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tfps.consistency.local_steps import LocalSteps
from tfps.consistency.mode import Mode
from tfps.consistency.synchronous import Synchronous
from tfps.consistency.warm_up import is_count, warm_up_problems
from tfps.errors import ConfigError


@dataclass(frozen=True)
class Asynchronous(Mode):
    """Every gradient is applied when it arrives; no worker waits for another.

    The default, and the fastest where workers differ in speed. A gradient may be computed from
    parameters that others have updated meanwhile; its staleness is counted exactly.

    Source: Dean et al., "Large Scale Distributed Deep Networks" (Downpour SGD), NeurIPS 2012.

    Args:
        pipeline_steps: 1 lets a worker compute its next gradient while its last push is on its
            way. The exchange costs no time then, if a core is free for it; every gradient is one
            update of its own worker older, which counts as staleness. Only for models whose step
            calls its optimizer once; others are not pipelined, and say so.
        warm_up_steps: how many steps each worker takes by itself before anything else; see
            `tfps.consistency.warm_up`.

    Raises:
        ConfigError: another number of steps.

    Example:

    >>> Asynchronous(pipeline_steps=1)
    Asynchronous(pipeline_steps=1, warm_up_steps=0)
    """

    pipeline_steps: int = 0
    warm_up_steps: int = 0

    def __post_init__(self) -> None:
        problems = warm_up_problems(self.warm_up_steps)
        if self.pipeline_steps not in (0, 1):
            problems.append(
                f"pipeline_steps: received {self.pipeline_steps!r}, expected 0, or 1: the next "
                "step is computed while the last one is pushed"
            )
        _refuse(problems)


@dataclass(frozen=True, slots=True)  # a slot hides the property of the base; no default could
class BoundedStaleness(Mode):
    """A worker may be so many steps ahead of the slowest, and then waits for it.

    Between waiting for everybody at each step and for nobody: workers that are slow for a moment
    hold nobody up, and no gradient comes from parameters much older than the others'. A worker that
    is slow all the time sets the pace in the end. Those that leave, die or hang are not waited for;
    who comes back begins beside the slowest. What is said of steps holds on every server by itself.
    In a custom loop each optimizer call of a scheduled function is a step.

    Source: Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
    Server", NeurIPS 2013.

    Args:
        bound_steps: how many steps a worker may have completed more than the slowest one and still
            start another; 0 is a barrier at every step.
        warm_up_steps: how many steps each worker takes by itself before anything else; see
            `tfps.consistency.warm_up`.

    Raises:
        ConfigError: no whole numbers from 0.

    Example:

    >>> BoundedStaleness(bound_steps=4)
    BoundedStaleness(bound_steps=4, warm_up_steps=0)
    """

    bound_steps: int = field()  # without it, the property of the base is taken for a default
    warm_up_steps: int = 0

    def __post_init__(self) -> None:
        problems = warm_up_problems(self.warm_up_steps)
        if not is_count(self.bound_steps):
            problems.append(
                f"bound_steps: received {self.bound_steps!r}, expected a whole number from 0: how "
                "many steps a worker may be ahead of the slowest"
            )
        _refuse(problems)


@dataclass(frozen=True)
class DynamicBoundedStaleness(Mode):
    """A bound that a worker may pass, within a range, if it waits less for the slowest then.

    For workers whose speeds are not known when a bound is chosen, or change. Up to the lower bound
    it is `BoundedStaleness`. Beyond it, the worker that is ahead of all is let go on for as many
    steps as bring the end of one of them nearest to the end of a step of the slowest, as predicted
    from the last two pushes of both; then it asks again. It is never further ahead than the upper
    bound, and who waits goes on when the lower one allows it. While a server has seen less than two
    pushes of one of them, it lets nobody go on. A worker that is slow all the time sets the pace in
    the end. Those that leave, die or hang are not waited for; who comes back begins beside the
    slowest. Each server decides by itself.

    Source: after Zhao, An, Liu and Chen, "Dynamic Stale Synchronous Parallel Distributed Training
    for Deep Learning", ICDCS 2019 (arXiv 1908.11848). The paper itself was not at hand; what it
    does was checked against a summary of its server's algorithm and a program of others for its
    controller: who may ask, the prediction, and the choice of the least difference between a push
    of one and a push of the other. By that summary a worker may ask again without end; here the
    upper bound holds in any case. The paper has one slowest worker; of several that are level, here
    the last one to push counts.

    Args:
        min_bound_steps: how many steps a worker may have completed more than the slowest one and
            always start another.
        max_bound_steps: how many at most, when it is let go on. If both bounds are the same, it is
            ``BoundedStaleness(min_bound_steps)``.
        warm_up_steps: how many steps each worker takes by itself before anything else; see
            `tfps.consistency.warm_up`.

    Raises:
        ConfigError: no whole numbers from 0, or the upper bound is below the lower one.

    Example:

    >>> DynamicBoundedStaleness(min_bound_steps=3, max_bound_steps=15)
    DynamicBoundedStaleness(min_bound_steps=3, max_bound_steps=15, warm_up_steps=0)
    """

    min_bound_steps: int
    max_bound_steps: int
    warm_up_steps: int = 0

    def __post_init__(self) -> None:
        bounds = {"min_bound_steps": self.min_bound_steps, "max_bound_steps": self.max_bound_steps}
        problems = [
            f"{name}: received {value!r}, expected a whole number from 0: how many steps a worker "
            "may be ahead of the slowest"
            for name, value in bounds.items()
            if not is_count(value)
        ]
        problems += warm_up_problems(self.warm_up_steps)
        problem = problems or range_problem(self.min_bound_steps, self.max_bound_steps)
        if problem:
            raise ConfigError(problem, source="DynamicBoundedStaleness")

    @property
    def bound_steps(self) -> int:
        """Up to here nobody is asked."""
        return self.min_bound_steps

    @property
    def extra_steps(self) -> int:
        """How many steps of the range lie beyond the lower bound."""
        return self.max_bound_steps - self.min_bound_steps


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ConfigError(problems)


def range_problem(min_bound_steps: int, max_bound_steps: int) -> str | None:
    """Say what is wrong with the two bounds of a range; None: nothing."""
    if max_bound_steps >= min_bound_steps:
        return None
    return (
        f"max_bound_steps: received {max_bound_steps} with min_bound_steps={min_bound_steps}; "
        "expected as many at least: nobody is further ahead than that"
    )


def applies_each_gradient(mode: Any) -> bool:
    """Whether servers apply the gradient of each worker and step by itself, as it comes.

    Example:

    >>> applies_each_gradient(BoundedStaleness(4))
    True
    """
    return isinstance(mode, (Asynchronous, BoundedStaleness, DynamicBoundedStaleness))


def lets_workers_wait(mode: Mode) -> bool:
    """Whether a worker may have to wait for others.

    Example:

    >>> lets_workers_wait(BoundedStaleness(4)), lets_workers_wait(Asynchronous())
    (True, False)
    """
    return mode.bound_steps is not None or mode.backup_workers is not None


# Enough for a step that takes a few times as long as the others, and few against an epoch.
DEFAULT_BOUND_STEPS = 4
DEFAULT_BOUND_RANGE_STEPS = (3, 15)
ALIASES: dict[str, Mode] = {
    "asynchronous": Asynchronous(),
    "synchronous": Synchronous(),
    "bounded_staleness": BoundedStaleness(DEFAULT_BOUND_STEPS),
    "dynamic_bounded_staleness": DynamicBoundedStaleness(*DEFAULT_BOUND_RANGE_STEPS),
}


def resolve(consistency: Any) -> Mode:
    """A mode from itself, its alias or None (asynchronous).

    Raises:
        ConfigError: anything else.
    """
    if consistency is None:
        return Asynchronous()
    if isinstance(consistency, str) and consistency in ALIASES:
        return ALIASES[consistency]
    if isinstance(
        consistency,
        (Asynchronous, Synchronous, BoundedStaleness, DynamicBoundedStaleness, LocalSteps),
    ):
        return consistency
    raise ConfigError(
        f"consistency: received {consistency!r}, expected tfps.Asynchronous(), "
        "tfps.Synchronous(), tfps.BoundedStaleness(bound_steps=4), "
        "tfps.DynamicBoundedStaleness(min_bound_steps=3, max_bound_steps=15), "
        "tfps.LocalSteps(period_steps=16) or one of "
        f"{', '.join(repr(alias) for alias in ALIASES)}"
    )
