"""The cases of one run of a benchmark, found by their axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tfps.bench.case import Case
from tfps.bench.report import Spread


class Results:
    """The cases of a run, in the order in which they came first.

    Example:

    >>> results = Results()
    >>> results.add({"seconds": 3.0}, way="ours")
    >>> results.add({"seconds": 2.0}, way="ours")
    >>> [case.spread("seconds").median for case in results.of(way="ours")]
    [2.5]
    """

    def __init__(self) -> None:
        self._cases: dict[tuple[Any, ...], Case] = {}

    def add(self, answer: Mapping[str, Any], *, seed: int | None = None, **axes: Any) -> None:
        """Take what a turn answered about one case.

        Args:
            answer: ``samples`` and ``details``, where it has them, become those of the case.
            seed: of the turn; None: turns are counted.
            axes: which case; all cases of a benchmark have the same axes, in one order.
        """
        case = self._cases.setdefault(tuple(axes.values()), Case(axes=axes))
        case.add(answer.get("samples", ()), answer.get("details"))
        case.runs[len(case.runs) if seed is None else seed] = answer

    @property
    def cases(self) -> list[Case]:
        """All of them."""
        return list(self._cases.values())

    def find(self, *place: Any) -> Case | None:
        """The case at a place on all axes; None if it was not measured."""
        return self._cases.get(place)

    def of(self, **axes: Any) -> list[Case]:
        """The cases that lie at a place on some axes."""
        return [
            case
            for case in self._cases.values()
            if all(case[name] == value for name, value in axes.items())
        ]

    def on(self, axis: str) -> list[Any]:
        """The places on an axis, in the order in which they came first."""
        return list(dict.fromkeys(case[axis] for case in self._cases.values()))

    def ratio(
        self,
        place: tuple[Any, ...],
        over: tuple[Any, ...],
        quantity: Callable[[Case], Spread] = lambda case: case.steps_per_s,
    ) -> float | None:
        """The median of one case over that of another; None if one of them was not measured."""
        ours, theirs = self.find(*place), self.find(*over)
        if ours is None or theirs is None:
            return None
        median = quantity(theirs).median
        return quantity(ours).median / median if median else None

    @property
    def other_cores(self) -> float:
        """Cores that something else kept busy, in the worst case."""
        return max((case.other_cores for case in self.cases if case.samples), default=0.0)
