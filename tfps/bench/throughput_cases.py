"""The cases of the throughput benchmark: by shape, and what they are compared by."""

from __future__ import annotations

from collections.abc import Callable

from tfps.bench.case import Case
from tfps.bench.report import Spread
from tfps.bench.results import Results
from tfps.bench.throughput_rows import ROWS
from tfps.bench.throughput_shapes import SHAPES, Shape


def memory_mib_by_role(case: Case) -> dict[str, Spread]:
    """The most that the largest task of each role had at once, with the libraries."""
    runs = [run["memory_mib"] for run in case.runs.values()]
    return {role: Spread.of([run[role] for run in runs]) for role in runs[0]}


def memory_mib(case: Case) -> float:
    """The most that the largest of all tasks had at once; the chief is one where it trains."""
    spreads = memory_mib_by_role(case)
    return max(spreads[role].median for role in spreads if role != "chief" or len(spreads) == 1)


def of_shape(results: Results, shape: Shape) -> list[Case]:
    """The cases of one shape, in the order of the rows."""
    return sorted(
        results.of(**shape.place),
        key=lambda case: (list(ROWS).index(case["row"]), case["steps_per_execution"]),
    )


def shapes(results: Results) -> list[Shape]:
    """The shapes that were measured, in their order."""
    return [shape for shape in SHAPES if results.of(**shape.place)]


def ratio(
    results: Results,
    case: Case,
    row: str,
    quantity: Callable[[Case], Spread] = lambda case: case.steps_per_s,
) -> float | None:
    """The case's median of a quantity over that of another row, all else equal."""
    other = {**case.axes, "row": row}
    return results.ratio(tuple(case.axes.values()), tuple(other.values()), quantity)
