"""The cases of a run of `tfps bench rows`, and how much faster updates of rows are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tfps.bench.case import Case, most_other_cores
from tfps.bench.report import Bar, Report

# Rates of updates of rows over those of all: by optimizer and size of the table in MiB.
AIMS = {("sgd", 64): 4.0, ("adam", 64): 10.0, ("sgd", 256): 15.0, ("adam", 256): 40.0}
LARGEST_OVER_SMALLEST_AIM = 0.8  # with updates of rows the table's size makes no difference


@dataclass
class RowsCase(Case):
    """The samples of one optimizer on one table."""

    optimizer: str
    mib: int
    by_rows: bool


class RowsResults:
    """The cases of a run by optimizer, size and way."""

    def __init__(self) -> None:
        self._cases: dict[tuple[str, int, bool], RowsCase] = {}

    def add(self, optimizer: str, mib: int, *, by_rows: bool, result: Mapping[str, Any]) -> None:
        """Take the result of one turn."""
        case = self._cases.setdefault((optimizer, mib, by_rows), RowsCase(optimizer, mib, by_rows))
        case.add(result["samples"], result["details"])

    @property
    def cases(self) -> list[RowsCase]:
        """In the order in which they came first."""
        return list(self._cases.values())

    @property
    def pairs(self) -> list[tuple[RowsCase, RowsCase]]:
        """The cases of one optimizer and table: all rows, and those of the batch."""
        return [
            (case, self._cases[case.optimizer, case.mib, True])
            for case in self.cases
            if not case.by_rows and (case.optimizer, case.mib, True) in self._cases
        ]

    @property
    def other_cores(self) -> float:
        """Cores that something else kept busy, in the worst case."""
        return most_other_cores(self.cases)

    def bars(self) -> list[Bar]:
        """What updates of rows are over those of all, and what the size does to them."""
        bars = [
            Bar(
                f"{dense.optimizer}, {dense.mib} MiB: rows of the batch over all rows",
                rows.steps_per_s.median / dense.steps_per_s.median,
                AIMS[dense.optimizer, dense.mib],
            )
            for dense, rows in self.pairs
            if (dense.optimizer, dense.mib) in AIMS
        ]
        for name in dict.fromkeys(case.optimizer for case in self.cases):
            own = [case for case in self.cases if case.optimizer == name and case.by_rows]
            if len(own) > 1:
                small, *_, large = sorted(own, key=lambda case: case.mib)
                bars.append(
                    Bar(
                        f"{name}, rows of the batch: {large.mib} MiB over {small.mib} MiB",
                        large.steps_per_s.median / small.steps_per_s.median,
                        LARGEST_OVER_SMALLEST_AIM,
                    )
                )
        return bars

    def report(self, settings: Mapping[str, Any]) -> Report:
        """Put the results into the form that all benchmarks share."""
        cases = [
            {
                "optimizer": case.optimizer,
                "mib": case.mib,
                "by_rows": case.by_rows,
                "steps_per_s": case.steps_per_s.as_json(),
                "cpu_ms_per_step": case.cpu_ms_per_step.as_json(),
                "other_cores": round(case.other_cores, 2),
                "samples": [asdict(sample) for sample in case.samples],
                "details": case.details,
            }
            for case in self.cases
        ]
        return Report("rows", settings, cases, self.bars())
