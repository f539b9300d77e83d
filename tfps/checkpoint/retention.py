"""Policies that choose the checkpoints to keep. Pure: they see numbers, times and metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from tfps.errors import ConfigError

MODES = ("min", "max")
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class SavedCheckpoint:
    """The properties of a checkpoint by which a retention policy decides.

    Args:
        number: the number of the checkpoint; later ones have larger numbers.
        saved_at_s: seconds since the Unix epoch.
        metrics: the model's metrics when it was saved.
    """

    number: int
    saved_at_s: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@runtime_checkable
class RetentionPolicy(Protocol):
    """Chooses the checkpoints to keep; the newest is kept in any case.

    It is the type of ``keep`` of a `tfps.CheckpointManager`. Implement `kept` for a policy of your
    own.

    Example:

    >>> class KeepEven:
    ...     def kept(self, saved):
    ...         return {one.number for one in saved if one.number % 2 == 0}
    >>> isinstance(KeepEven(), RetentionPolicy)
    True
    """

    def kept(self, saved: Sequence[SavedCheckpoint]) -> set[int]:
        """Return the numbers of the checkpoints to keep.

        Args:
            saved: all checkpoints, the oldest first; each has a ``number``, the time ``saved_at_s``
                (seconds since the Unix epoch) and the ``metrics`` by name.
        """


@dataclass(frozen=True)
class KeepLatest:
    """Keeps the newest checkpoints.

    Use it to limit the space on disk; `tfps.CheckpointManager` does so with three by default.

    Args:
        count: the number of checkpoints.

    Raises:
        ConfigError: ``count`` is not a whole number from 1.

    Example:

    >>> saved = [SavedCheckpoint(number=number, saved_at_s=0.0) for number in (1, 2, 3)]
    >>> KeepLatest(2).kept(saved)
    {2, 3}
    """

    count: int = 3

    def __post_init__(self) -> None:
        _check_count(self.count)

    def kept(self, saved: Sequence[SavedCheckpoint]) -> set[int]:
        return {one.number for one in saved[-self.count :]}


@dataclass(frozen=True)
class KeepEvery:
    """Keeps the first checkpoint, and each that is some hours younger than the last kept one.

    Use it to keep a coarse history of a long training, in an `AnyOf` with `KeepLatest`.

    Args:
        hours: the least time in hours between two kept checkpoints.

    Raises:
        ConfigError: ``hours`` is not a finite number above 0.

    Example:

    >>> saved = [SavedCheckpoint(number=n, saved_at_s=1800.0 * n) for n in (1, 2, 3, 4)]
    >>> KeepEvery(hours=1).kept(saved)
    {1, 3}
    """

    hours: float

    def __post_init__(self) -> None:
        if not _is_number(self.hours) or not 0 < self.hours < math.inf:
            raise ConfigError(f"hours: received {self.hours!r}, expected a number above 0")

    def kept(self, saved: Sequence[SavedCheckpoint]) -> set[int]:
        numbers: set[int] = set()
        due_s = -math.inf
        for one in saved:
            if one.saved_at_s >= due_s:
                numbers.add(one.number)
                due_s = one.saved_at_s + self.hours * SECONDS_PER_HOUR
        return numbers


@dataclass(frozen=True)
class KeepBest:
    """Keeps the checkpoints with the best value of a metric, the newer ones of equal value.

    Use it to keep the model with the lowest validation loss, for example. A checkpoint without the
    metric, or whose value is NaN, is never among the best.

    Args:
        metric: the metric's name in the logs of `fit`, such as ``val_loss``.
        mode: whether the best is the smallest (``"min"``) or the largest (``"max"``) value.
        count: the number of checkpoints.

    Raises:
        ConfigError: ``metric`` is not a name, ``mode`` is another one, or ``count`` is below 1.

    Example:

    >>> losses = {1: 0.5, 2: 0.2, 3: 0.4}
    >>> saved = [
    ...     SavedCheckpoint(number=n, saved_at_s=0.0, metrics={"loss": loss})
    ...     for n, loss in losses.items()
    ... ]
    >>> KeepBest("loss", mode="min").kept(saved)
    {2}
    """

    metric: str
    mode: str = "min"
    count: int = 1

    def __post_init__(self) -> None:
        _check_count(self.count)
        if not isinstance(self.metric, str) or not self.metric:
            raise ConfigError(f"metric: received {self.metric!r}, expected a name, such as 'loss'")
        if self.mode not in MODES:
            raise ConfigError(f"mode: received {self.mode!r}, expected one of {MODES}")

    def kept(self, saved: Sequence[SavedCheckpoint]) -> set[int]:
        sign = -1.0 if self.mode == "min" else 1.0
        values = {
            one.number: sign * one.metrics[self.metric]
            for one in saved
            if not math.isnan(one.metrics.get(self.metric, math.nan))
        }
        best = sorted(values, key=lambda number: (values[number], number), reverse=True)
        return set(best[: self.count])


@dataclass(frozen=True)
class AnyOf:
    """Keeps each checkpoint that any of several policies keeps.

    Use it to keep both the newest checkpoints, to go on from, and the best or some old ones.

    Args:
        policies: at least one policy.

    Raises:
        ConfigError: there is no policy, or a value is not one.

    Example:

    >>> saved = [SavedCheckpoint(number=n, saved_at_s=1800.0 * n) for n in (1, 2, 3, 4)]
    >>> sorted(AnyOf(KeepLatest(1), KeepEvery(hours=1)).kept(saved))
    [1, 3, 4]
    """

    policies: tuple[RetentionPolicy, ...]

    def __init__(self, *policies: RetentionPolicy) -> None:
        if not policies or not all(isinstance(policy, RetentionPolicy) for policy in policies):
            raise ConfigError(
                f"AnyOf: received {policies!r}, expected policies of retention, such as "
                "KeepLatest(3)"
            )
        object.__setattr__(self, "policies", policies)

    def kept(self, saved: Sequence[SavedCheckpoint]) -> set[int]:
        return set().union(*(policy.kept(saved) for policy in self.policies))


def find_superfluous(saved: Sequence[SavedCheckpoint], policy: RetentionPolicy) -> list[int]:
    """Return the numbers of the checkpoints that may be deleted, the oldest first.

    Example:

    >>> saved = [SavedCheckpoint(number=n, saved_at_s=0.0) for n in (3, 1, 2)]
    >>> find_superfluous(saved, KeepLatest(1))
    [1, 2]
    """
    ordered = sorted(saved, key=lambda one: one.number)
    if not ordered:
        return []
    kept_numbers = policy.kept(ordered) | {ordered[-1].number}
    return [one.number for one in ordered if one.number not in kept_numbers]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_count(count: object) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ConfigError(f"count: received {count!r}, expected a whole number of at least 1")
