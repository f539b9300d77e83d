"""Consistency modes: how far a worker may run ahead, and when a server applies a gradient."""

from __future__ import annotations

from dataclasses import dataclass

from tfps.errors import ConfigError


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


ALIASES = {"asynchronous": Asynchronous}


def resolve(consistency: Asynchronous | str | None) -> Asynchronous:
    """A mode from itself, its alias or None (asynchronous).

    Raises:
        ConfigError: anything else.
    """
    if consistency is None:
        return Asynchronous()
    if isinstance(consistency, str) and consistency in ALIASES:
        return ALIASES[consistency]()
    if isinstance(consistency, Asynchronous):
        return consistency
    raise ConfigError(
        f"consistency: received {consistency!r}, expected tfps.Asynchronous() or one of "
        f"{', '.join(repr(alias) for alias in ALIASES)}"
    )
