"""The cases of a run of `tfps bench throughput`, and the comparisons between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tfps.bench.case import Case, most_other_cores
from tfps.bench.report import Bar, Report, Spread
from tfps.bench.throughput.rows import ROWS, TITLES
from tfps.bench.throughput.shapes import SHAPES, Aim, Shape

BASELINE = "stock_fit"
SINGLE = "single_fit"


@dataclass
class ThroughputCase(Case):
    """The samples of one row at one length of execution on one shape."""

    shape: Shape
    row: str
    steps_per_execution: int


class ThroughputResults:
    """The cases of a run, found by what they are."""

    def __init__(self) -> None:
        self._cases: dict[tuple[Shape, str, int], ThroughputCase] = {}

    def add(self, shape: Shape, row: str, result: Mapping[str, Any]) -> None:
        """Take the result of one turn."""
        for length, samples in result["samples"].items():
            key = (shape, row, int(length))
            case = self._cases.setdefault(key, ThroughputCase(*key))
            case.add(samples, result["details"])

    def of_shape(self, shape: Shape) -> list[ThroughputCase]:
        """The cases of one shape, in the order of the rows."""
        return sorted(
            (case for case in self._cases.values() if case.shape == shape),
            key=lambda case: (list(ROWS).index(case.row), case.steps_per_execution),
        )

    def ratio(self, case: ThroughputCase, row: str, quantity: str = "steps_per_s") -> float | None:
        """The case's median of a quantity over that of another row, all else equal."""
        other = self._cases.get((case.shape, row, case.steps_per_execution))
        if other is None:
            return None
        ours: Spread = getattr(case, quantity)
        theirs: Spread = getattr(other, quantity)
        return ours.median / theirs.median if theirs.median else None

    @property
    def shapes(self) -> list[Shape]:
        """The shapes in the order in which they were measured."""
        return list(dict.fromkeys(case.shape for case in self._cases.values()))

    @property
    def other_cores(self) -> float:
        """Cores that something else kept busy, in the worst case."""
        return most_other_cores(self._cases.values())

    def report(self, settings: Mapping[str, Any]) -> Report:
        """Put the results into the form that all benchmarks share."""
        cases = [
            {
                "model": case.shape.model,
                "workers": case.shape.workers,
                "ps": case.shape.ps,
                "row": case.row,
                "steps_per_execution": case.steps_per_execution,
                "batch_size": settings["batch_size"],
                "steps_per_s": case.steps_per_s.as_json(),
                "cpu_ms_per_step": case.cpu_ms_per_step.as_json(),
                "other_cores": round(case.other_cores, 2),
                "ratio_to_stock_fit": _rounded(self.ratio(case, BASELINE)),
                "ratio_to_single_fit": _rounded(self.ratio(case, SINGLE)),
                "samples": [asdict(sample) for sample in case.samples],
                "details": case.details,
            }
            for shape in self.shapes
            for case in self.of_shape(shape)
        ]
        return Report("throughput", settings, cases, self.bars())

    def bars(self) -> list[Bar]:
        """Every comparison that has an aim."""
        return [self._bar(shape, aim) for shape in SHAPES for aim in shape.aims]

    def _bar(self, shape: Shape, aim: Aim) -> Bar:
        case = self._cases.get((shape, aim.row, aim.steps_per_execution))
        value = None if case is None else self.ratio(case, aim.with_row, aim.quantity)
        what = "CPU per step of " if aim.is_cost else ""
        name = (
            f"{shape.title}, {aim.steps_per_execution} per execution: "
            f"{what}{TITLES[aim.row]} over {TITLES[aim.with_row]}"
        )
        return Bar(name, value, aim.value, is_cost=aim.is_cost)


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 3)
