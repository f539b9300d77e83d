"""The base class of all benchmarks: settings, turns, the report and the tables."""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

from pydantic import TypeAdapter
from rich.console import Group
from rich.table import Table
from rich.text import Text

from benchmarks.machine import PACKAGES, describe_machine
from benchmarks.results import Bar, Case, Measure, Results, to_json_value
from benchmarks.settings import REPETITIONS
from benchmarks.table import bar_lines, case_table, columns_of, note
from benchmarks.turn import TaskNumbers, Turn
from tfps.package_versions import package_versions

# By axis the places in their order, None where they go by their size; the first axis counts most.
Order: TypeAlias = Mapping[str, Iterable[Any] | None]


@dataclass(frozen=True)
class Benchmark(ABC):
    """A benchmark: its fields are its settings, its docstring is what `--help` says.

    A class is one file: what is measured, in a fresh chief process; in which order; what has an
    aim; tables and a picture. Its module is imported to list its options, so it imports TensorFlow
    and Keras only where it uses them.
    """

    name: ClassVar[str]
    # Settings that only say which turns there are: a turn of a run with others is the same.
    chooses: ClassVar[tuple[str, ...]] = ()
    needs_tf_keras: ClassVar[bool] = False  # for TensorFlow's own strategy
    order: ClassVar[Order] = {}  # of the cases in the report

    repetitions: int = field(default=3, metadata=REPETITIONS)  # turns of each case, or seeds

    @property
    def seeds(self) -> list[int]:
        """Return a seed for each repetition, for benchmarks that draw random numbers."""
        return list(range(1, self.repetitions + 1))

    @abstractmethod
    def quick(self) -> Self:
        """Return a short version, which checks that everything works but measures little."""

    @abstractmethod
    def plan(self, folder: Path) -> Iterable[Turn]:
        """Return all turns in their order; called once in a run.

        Args:
            folder: for what the turns of this run need, for as long as it lasts. What says in a
                case where files lie is called ``..._path`` or ``folder``: `--resume` overlooks it.
        """

    @abstractmethod
    def measure(self, tasks: TaskNumbers, *args: Any, **case: Any) -> Any:
        """Measure a turn's case in a chief; the result is JSON."""

    def take(self, results: Results, turn: Turn, result: Any) -> None:
        """Add the result of a turn."""
        results.add(result, seed=turn.seed, **(turn.case if turn.axes is None else turn.axes))

    def cases(self, results: Results) -> list[Case]:
        """Return the cases in the order of the report."""
        return results.in_order(self.order)

    def measures(self, results: Results) -> Sequence[Measure]:
        """Return the measures that the report and the tables add to a case's axes and samples."""
        raise NotImplementedError

    def compute_quantities(self, results: Results, case: Case) -> dict[str, Any]:
        """Return the numbers of one case for the report, by their keys."""
        found = {each.key: each.of(case) for each in self.measures(results) if each.key}
        noise = {"other_cores": round(case.other_cores, 2)} if case.samples else {}
        return found | noise

    def entries(self, results: Results) -> list[dict[str, Any]]:
        """Return the cases as they stand in the report."""
        return [
            case.as_json(self.compute_quantities(results, case)) for case in self.cases(results)
        ]

    def bars(self, results: Results) -> list[Bar]:
        """Return all comparisons that have an aim."""
        return []

    def findings(self, results: Results) -> dict[str, Any]:
        """Return further entries of the report, by their keys."""
        return {}

    def title_of(self, case: Case) -> str:
        """Return the title of the table in which a case stands."""
        raise NotImplementedError

    def row_of(self, case: Case) -> str:
        """Return the name of a case's row; rows below with the same name show none."""
        raise NotImplementedError

    def tables(self, results: Results) -> Sequence[Table]:
        """Return the results for a terminal of 80 columns."""
        columns = columns_of(self.measures(results))
        return [
            case_table(title, _without_repeats(map(self.row_of, cases)), cases, columns)
            for title, cases in grouped(self.cases(results), self.title_of).items()
        ]

    @abstractmethod
    def explanation(self, results: Results) -> str:
        """Return the text below the tables."""

    def verdicts(self, results: Results) -> Sequence[Text]:
        """Return the texts between the explanation and the aims."""
        return ()

    @abstractmethod
    def draw(self, results: Results, path: Path) -> None:
        """Write the picture."""

    @classmethod
    def help(cls) -> str:
        """Return the help text of the command line: the class's docstring without `Args`."""
        return (inspect.getdoc(cls) or "").partition("\n\nArgs:")[0]

    def as_json(self) -> dict[str, Any]:
        """Give the settings in the form of the report."""
        return self.settings()

    def settings(self) -> dict[str, Any]:
        """Give the settings in the form in which a chief gets them."""
        fields: dict[str, Any] = TypeAdapter(type(self)).dump_python(self, mode="json")
        return fields

    def write(self, results: Results, folder: Path) -> Path:
        """Write `NAME.json`, in the form that all benchmarks share, and return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        content = {
            "benchmark": self.name,
            "settings": self.as_json(),
            "machine": describe_machine(),
            "package_versions": package_versions(PACKAGES),
            **({"kept_turns": results.kept_turns} if results.kept_turns else {}),
            **self.findings(results),
            "bars": [bar.as_json() for bar in self.bars(results)],
            "cases": to_json_value(self.entries(results)),
        }
        path.write_text(json.dumps(content, indent=2) + "\n")
        return path

    def present(self, results: Results) -> Group:
        """Return everything that is printed at the end."""
        return Group(
            *self.tables(results),
            note(self.explanation(results), other_cores=results.other_cores),
            *self.verdicts(results),
            *bar_lines(self.bars(results)),
        )

    @classmethod
    def run_order(cls, order: Mapping[str, Any]) -> Any:
        """Run the measurement that an order describes, in a chief process."""
        settings: Benchmark = TypeAdapter(cls).validate_python(order["settings"])
        return settings.measure(TaskNumbers(order["groups"]), **order["case"])


def grouped(cases: Iterable[Case], key: Callable[[Case], Any]) -> dict[Any, list[Case]]:
    """Group cases by the value of a key function, in their order."""
    found: dict[Any, list[Case]] = {}
    for case in cases:
        found.setdefault(key(case), []).append(case)
    return found


def _without_repeats(names: Iterable[str]) -> list[str]:
    return ["" if name == before else name for before, name in pairwise(["", *names])]
