"""Consistency modes: how far a worker may run ahead, and when a server applies a gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfps.consistency.local_steps import LocalSteps, period_steps_of
from tfps.consistency.mode import Mode
from tfps.consistency.synchronous import Synchronous
from tfps.consistency.warm_up import is_count, warm_up_problems
from tfps.errors import ConfigError, refuse


@dataclass(frozen=True, kw_only=True)
class Asynchronous(Mode):
    """The mode in which servers apply each gradient when it arrives, and no worker waits.

    Pass it as ``consistency`` of a `tfps.ParameterServerStrategy`. It is the default, and the
    fastest mode if workers differ in speed. A gradient may be computed from parameters that other
    workers have updated meanwhile; the servers count this staleness exactly.

    Source: Dean et al., "Large Scale Distributed Deep Networks" (Downpour SGD), NeurIPS 2012.

    Args:
        warm_up_steps: the number of steps of `fit` that each worker first takes on its own copy of
            the weights, before all continue from the mean; see `tfps.consistency.warm_up`.

    Raises:
        ConfigError: a number of steps out of range.

    Example:

    >>> Asynchronous()
    Asynchronous(warm_up_steps=0)
    """

    warm_up_steps: int = 0

    def __post_init__(self) -> None:
        refuse(warm_up_problems(self.warm_up_steps))


@dataclass(frozen=True, slots=True)  # a slot hides the base's property; a default value cannot
class BoundedStaleness(Mode):
    """The mode in which a worker that is some steps ahead of the slowest one waits for it.

    Use it between `Synchronous` and `Asynchronous`: a worker that is slow for a moment delays no
    other, and no gradient comes from parameters much older than the others'. A worker that is
    always slow sets the pace in the end. Workers that leave, die or hang are not waited for; one
    that comes back begins with the clock of the slowest. Each server applies these rules by itself.
    In a custom loop each optimizer call of a scheduled function is a step.

    Source: Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
    Server", NeurIPS 2013.

    Args:
        bound_steps: the number of steps by which a worker may be ahead of the slowest one and still
            start another; 0 is a barrier at every step.
        warm_up_steps: the number of steps of `fit` that each worker first takes on its own copy of
            the weights, before all continue from the mean; see `tfps.consistency.warm_up`.

    Raises:
        ConfigError: a number that is not a whole number from 0.

    Example:

    >>> BoundedStaleness(bound_steps=4)
    BoundedStaleness(bound_steps=4, warm_up_steps=0)
    """

    bound_steps: int = field()  # otherwise dataclass takes the base's property for a default
    warm_up_steps: int = 0

    def __post_init__(self) -> None:
        problems = warm_up_problems(self.warm_up_steps)
        if not is_count(self.bound_steps):
            problems.append(
                f"bound_steps: received {self.bound_steps!r}, expected a whole number from 0: the "
                "steps that a worker may be ahead of the slowest"
            )
        refuse(problems)


def applies_each_gradient(mode: Any) -> bool:
    """Return whether servers apply the gradient of each worker and step by itself, as it comes.

    Example:

    >>> applies_each_gradient(BoundedStaleness(4))
    True
    """
    return isinstance(mode, (Asynchronous, BoundedStaleness))


def whole_rounds(steps: int, mode: Mode, *, alive: Callable[[], Sequence[bool]]) -> int:
    """Return the least number of steps, at least ``steps``, after which a mode exchanges.

    Args:
        steps: the steps of all workers.
        mode: the mode; in modes with rounds, all live workers exchange together.
        alive: returns for each worker whether it takes part.

    Example:

    >>> whole_rounds(5, Synchronous(), alive=lambda: [True, False, True])
    6
    """
    together = period_steps_of(mode)
    if mode.backup_workers is not None:
        together *= max(1, sum(alive()))
    return -(-steps // together) * together


def lets_workers_wait(mode: Mode) -> bool:
    """Return whether a worker may have to wait for others.

    Example:

    >>> lets_workers_wait(BoundedStaleness(4)), lets_workers_wait(Asynchronous())
    (True, False)
    """
    return mode.bound_steps is not None or mode.backup_workers is not None


# Enough for a step that takes a few times as long as the others, and little compared to an epoch.
DEFAULT_BOUND_STEPS = 4
ALIASES: dict[str, Mode] = {
    "asynchronous": Asynchronous(),
    "synchronous": Synchronous(),
    "bounded_staleness": BoundedStaleness(DEFAULT_BOUND_STEPS),
}


def resolve(consistency: Any) -> Mode:
    """Return a mode from itself, its alias or None (asynchronous).

    Raises:
        ConfigError: for any other value.
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
