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

    Example:

    >>> Asynchronous()
    Asynchronous()
    """


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
