"""Consistency modes: how far a worker may run ahead, and when a server applies a gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfps.consistency.local_steps import LocalSteps, period_steps_of
from tfps.consistency.mode import Mode
from tfps.consistency.synchronous import Synchronous, adaptive_batches_of
from tfps.consistency.warm_up import is_count, warm_up_problems
from tfps.errors import ConfigError, refuse


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
        warm_up_steps: how many steps of `fit` each worker takes by itself before all else; see
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
        refuse(problems)


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
        warm_up_steps: how many steps of `fit` each worker takes by itself before all else; see
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
        refuse(problems)


def applies_each_gradient(mode: Any) -> bool:
    """Whether servers apply the gradient of each worker and step by itself, as it comes.

    Example:

    >>> applies_each_gradient(BoundedStaleness(4))
    True
    """
    return isinstance(mode, (Asynchronous, BoundedStaleness))


def whole_rounds(
    steps: int | None, mode: Mode, *, alive: Callable[[], Sequence[bool]]
) -> int | None:
    """Return the least number of steps, from `steps` on, after which a mode exchanges.

    Args:
        steps: of all workers; None, which is returned as it is, for no limit.
        mode: in one of rounds, the exchange is one of all workers that take part.
        alive: tells for each worker whether it does.

    Example:

    >>> whole_rounds(5, Synchronous(), alive=lambda: [True, False, True])
    6
    """
    if steps is None:
        return None
    together = period_steps_of(mode)
    if mode.backup_workers is not None:
        together *= adaptive_batches_of(mode) * max(1, sum(alive()))
    return -(-steps // together) * together


def lets_workers_wait(mode: Mode) -> bool:
    """Whether a worker may have to wait for others.

    Example:

    >>> lets_workers_wait(BoundedStaleness(4)), lets_workers_wait(Asynchronous())
    (True, False)
    """
    return mode.bound_steps is not None or mode.backup_workers is not None


# Enough for a step that takes a few times as long as the others, and few against an epoch.
DEFAULT_BOUND_STEPS = 4
ALIASES: dict[str, Mode] = {
    "asynchronous": Asynchronous(),
    "synchronous": Synchronous(),
    "bounded_staleness": BoundedStaleness(DEFAULT_BOUND_STEPS),
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
    if isinstance(consistency, (Asynchronous, Synchronous, BoundedStaleness, LocalSteps)):
        return consistency
    raise ConfigError(
        f"consistency: received {consistency!r}, expected tfps.Asynchronous(), "
        "tfps.Synchronous(), tfps.BoundedStaleness(bound_steps=4), "
        "tfps.LocalSteps(period_steps=16) or one of "
        f"{', '.join(repr(alias) for alias in ALIASES)}"
    )
