"""Consistency modes: how far a worker may run ahead, and when a server applies a gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from tfps.errors import ConfigError


class Mode(Protocol):
    """What the parts that act on it ask of a mode."""

    @property
    def pipeline_steps(self) -> int:
        """How many pushes a worker has on their way while it computes."""

    @property
    def bound_steps(self) -> int | None:
        """How far ahead of the slowest a worker may start a step; None: as far as it can."""


@dataclass(frozen=True)
class Asynchronous:
    """Every gradient is applied when it arrives; no worker waits for another.

    The default, and the fastest where workers differ in speed. A gradient may be computed from
    parameters that others have updated meanwhile; its staleness is counted exactly.

    Source: Dean et al., "Large Scale Distributed Deep Networks" (Downpour SGD), NeurIPS 2012.

    Args:
        pipeline_steps: 1 lets a worker compute its next gradient while its last push is on its
            way. The exchange costs no time then, if a core is free for it; every gradient is one
            update of its own worker older, which counts as staleness. Only for models whose step
            calls its optimizer once; others are not pipelined, and say so.

    Raises:
        ConfigError: another number of steps.

    Example:

    >>> Asynchronous(pipeline_steps=1)
    Asynchronous(pipeline_steps=1)
    """

    pipeline_steps: int = 0

    def __post_init__(self) -> None:
        if self.pipeline_steps not in (0, 1):
            raise ConfigError(
                f"pipeline_steps: received {self.pipeline_steps!r}, expected 0, or 1: the next "
                "step is computed while the last one is pushed"
            )

    @property
    def bound_steps(self) -> None:
        """There is no bound."""
        return None


@dataclass(frozen=True)
class BoundedStaleness:
    """A worker may be so many steps ahead of the slowest, and then waits for it.

    Between waiting for everybody at each step and for nobody: workers that are slow for a moment
    hold nobody up, and no gradient comes from parameters much older than the others'. A worker that
    is slow all the time sets the pace in the end. Those that leave, die or hang are not waited for;
    who comes back begins beside the slowest. What is said of steps holds on every server by itself.

    Source: Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
    Server", NeurIPS 2013.

    Args:
        bound_steps: how many steps a worker may have completed more than the slowest one and still
            start another; 0 is a barrier at every step.

    Raises:
        ConfigError: no whole number from 0.

    Example:

    >>> BoundedStaleness(bound_steps=4)
    BoundedStaleness(bound_steps=4)
    """

    bound_steps: int

    def __post_init__(self) -> None:
        is_count = isinstance(self.bound_steps, int) and not isinstance(self.bound_steps, bool)
        if not is_count or self.bound_steps < 0:
            raise ConfigError(
                f"bound_steps: received {self.bound_steps!r}, expected a whole number from 0: how "
                "many steps a worker may be ahead of the slowest"
            )

    @property
    def pipeline_steps(self) -> int:
        """A worker that may have to wait at each step sends nothing ahead."""
        return 0


# Enough for a step that takes a few times as long as the others, and few against an epoch.
DEFAULT_BOUND_STEPS = 4
ALIASES: dict[str, Mode] = {
    "asynchronous": Asynchronous(),
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
    if isinstance(consistency, (Asynchronous, BoundedStaleness)):
        return consistency
    raise ConfigError(
        f"consistency: received {consistency!r}, expected tfps.Asynchronous(), "
        f"tfps.BoundedStaleness(bound_steps=4) or one of "
        f"{', '.join(repr(alias) for alias in ALIASES)}"
    )
