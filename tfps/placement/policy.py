"""Placement policies: which server takes the next variable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tfps.errors import ConfigError


@runtime_checkable
class Placement(Protocol):
    """Chooses a server for a variable, knowing what the servers hold already."""

    def choose(self, *, bytes_per_server: Sequence[int], variables_placed: int) -> int:
        """The index of the server that takes the next variable."""


@dataclass(frozen=True)
class LeastLoaded:
    """The server that holds the fewest bytes; the first of several.

    For variables of equal size this is TensorFlow's round-robin; for others it keeps a few large
    variables from meeting on one server (tensorflow#45291).

    Example:

    >>> LeastLoaded().choose(bytes_per_server=[400, 12], variables_placed=2)
    1
    """

    def choose(self, *, bytes_per_server: Sequence[int], variables_placed: int) -> int:
        return min(range(len(bytes_per_server)), key=lambda server: bytes_per_server[server])


@dataclass(frozen=True)
class RoundRobin:
    """Server after server, by count, as `tf.distribute.ParameterServerStrategy` does."""

    def choose(self, *, bytes_per_server: Sequence[int], variables_placed: int) -> int:
        return variables_placed % len(bytes_per_server)


ALIASES: Mapping[str, Callable[[], Placement]] = {
    "least_loaded": LeastLoaded,
    "round_robin": RoundRobin,
}


def resolve(placement: Placement | str | None) -> Placement:
    """A policy from itself, its alias or None (`LeastLoaded`).

    Raises:
        ConfigError: neither a policy nor a known alias.
    """
    if placement is None:
        return LeastLoaded()
    if isinstance(placement, str) and placement in ALIASES:
        return ALIASES[placement]()
    if not isinstance(placement, (str, type)) and isinstance(placement, Placement):
        return placement
    raise ConfigError(
        f"placement: received {placement!r}, expected an object with a method choose() or one of "
        f"{', '.join(repr(alias) for alias in ALIASES)}"
    )
