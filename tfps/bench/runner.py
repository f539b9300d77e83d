"""What all benchmarks share: turns in fresh chief processes, the report and the tables."""

from __future__ import annotations

import contextlib
import inspect
import json
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from pydantic import TypeAdapter
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tfps.bench.journal import TurnJournal
from tfps.bench.machine import PACKAGES, describe_machine
from tfps.bench.namespace_cluster import NamespaceCluster
from tfps.bench.results import Bar, Case, Results
from tfps.bench.settings import REPETITIONS
from tfps.bench.table import bar_lines, note
from tfps.bench.usage import EpochClock
from tfps.cluster import ClusterSpec
from tfps.errors import TaskFailed
from tfps.launch import LocalCluster
from tfps.launch.environment import common_environment, task_environment
from tfps.launch.process import describe_status, start_program
from tfps.package_versions import package_versions
from tfps.testing import NoNamespacesError, namespaces
from tfps.transport.direct import RATE_VARIABLE

TURN_TIMEOUT_S = 600.0  # a turn takes half a minute; one that hangs must not keep the others
# How items of a case end that say where files lie: elsewhere in each run.
PLACES = ("_path", "folder")


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

    repetitions: int = field(default=3, metadata=REPETITIONS)  # turns of each case, or seeds

    @property
    def seeds(self) -> list[int]:
        """Of the repetitions, where each has one."""
        return list(range(1, self.repetitions + 1))

    @abstractmethod
    def quick(self) -> Self:
        """Give a version that shows whether everything works, with numbers of little worth."""

    @property
    @abstractmethod
    def turns(self) -> int:
        """How many turns a run has."""

    @abstractmethod
    def run(self, bench: Bench) -> None:
        """Measure everything and add it to the results."""

    def measure(self, tasks: TaskNumbers, *args: Any, **case: Any) -> Any:
        """Measure one case, as `run` gives it to `Bench.turn`, in a chief; the answer is JSON."""
        raise NotImplementedError

    def cases(self, results: Results) -> list[Case]:
        """The cases in the order of the report."""
        return results.cases

    def quantities(self, results: Results, case: Case) -> dict[str, Any]:
        """What the report says of a case beside its axes and samples, by its key."""
        raise NotImplementedError

    def entries(self, results: Results) -> list[dict[str, Any]]:
        """The cases as they stand in the report."""
        return [case.as_json(self.quantities(results, case)) for case in self.cases(results)]

    def bars(self, results: Results) -> list[Bar]:
        """Every comparison that has an aim."""
        return []

    def findings(self, results: Results) -> dict[str, Any]:
        """What else the report says, by its key."""
        return {}

    @abstractmethod
    def tables(self, results: Results) -> Sequence[Table]:
        """The results for a terminal of 80 columns."""

    @abstractmethod
    def explanation(self, results: Results) -> str:
        """What stands below the tables."""

    def verdicts(self, results: Results) -> Sequence[Text]:
        """What stands between the explanation and the aims."""
        return ()

    @abstractmethod
    def draw(self, results: Results, path: Path) -> None:
        """Write the picture."""

    @classmethod
    def help(cls) -> str:
        """What the command line says of it."""
        return (inspect.getdoc(cls) or "").partition("\n\nArgs:")[0]

    def as_json(self) -> dict[str, Any]:
        """Give the settings in the form of the report."""
        return self._fields()

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
            "cases": self.entries(results),
        }
        path.write_text(json.dumps(content, indent=2) + "\n")
        return path

    def present(self, results: Results) -> Group:
        return Group(
            *self.tables(results),
            note(self.explanation(results), other_cores=results.other_cores),
            *self.verdicts(results),
            *bar_lines(self.bars(results)),
        )

    def order(self, groups: Mapping[str, Sequence[int]], case: Mapping[str, Any]) -> dict[str, Any]:
        """Give what a chief process needs to measure a case; its form is JSON."""
        return {"settings": self._fields(), "groups": groups, "case": case}

    @classmethod
    def answer(cls, order: Mapping[str, Any]) -> Any:
        """Do in a chief process what was ordered."""
        settings: Benchmark = TypeAdapter(cls).validate_python(order["settings"])
        return settings.measure(TaskNumbers(order["groups"]), **order["case"])

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = TypeAdapter(type(self)).dump_python(self, mode="json")
        return fields


@dataclass(frozen=True)
class TaskNumbers:
    """The process numbers of a cluster's tasks by role, as a chief process gets them."""

    groups: Mapping[str, Sequence[int]]

    def clock(self, *, by_role: bool = True) -> EpochClock:
        """Watch all tasks, and each role by itself if wanted."""
        every = [number for numbers in self.groups.values() for number in numbers]
        return EpochClock(every, self.groups if by_role else None)


class ServingCluster(Protocol):
    """Workers and servers for a chief process."""

    @property
    def spec(self) -> ClusterSpec:
        """Where the tasks are."""

    @property
    def chief_command(self) -> tuple[str, ...]:
        """What stands before the command of a chief process."""

    def pid(self, task_type: str, index: int) -> int:
        """The number of a task's process."""


@dataclass(frozen=True)
class Bench:
    """One run of a benchmark."""

    benchmark: Benchmark
    progress: Callable[[str], None]  # is called with the name of each turn when it starts
    log_dir: Path  # where the chiefs and the servers write what they have to say
    journal: TurnJournal  # of the turns of this run, and of one that it resumes

    @cached_property
    def results(self) -> Results:
        """What was measured up to now."""
        return Results()

    def cluster(
        self, workers: int, ps: int, *, name: str = "cluster", **options: Any
    ) -> LocalCluster:
        """A cluster that goes on from turn to turn; use it in a ``with`` statement."""
        return LocalCluster(workers, ps, log_dir=self.log_dir / name, **options)

    @contextlib.contextmanager
    def _linked_cluster(
        self, workers: int, ps: int, *, name: str, megabits_per_s: float | None
    ) -> Iterator[ServingCluster]:
        """A cluster of tasks with networks of their own, joined by links of a rate.

        Where this process may not make networks, it is one of this machine whose tasks hold back
        what they send over `direct`, as links of that rate would.
        """
        counts = (("chief", 1), ("worker", workers), ("ps", ps))
        tasks = [(kind, index) for kind, count in counts for index in range(count)]
        with contextlib.ExitStack() as stack:
            try:
                network = stack.enter_context(namespaces(tasks, megabits_per_s=megabits_per_s))
            except NoNamespacesError:
                rate = {} if megabits_per_s is None else {RATE_VARIABLE: f"{megabits_per_s:g}"}
                yield stack.enter_context(self.cluster(workers, ps, name=name, environment=rate))
            else:
                yield stack.enter_context(NamespaceCluster(network, log_dir=self.log_dir / name))

    def turn(
        self,
        cluster: ServingCluster | None,
        *,
        name: str,
        case: Mapping[str, Any],
        needs_cluster: bool = True,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = TURN_TIMEOUT_S,
    ) -> Any:
        """Measure a case in a fresh chief process on a cluster, and return what it answers.

        The name is that of the process in messages, and of its log; the case the arguments of
        `Benchmark.measure`. What trains in the chief alone needs no cluster; without one, `measure`
        may start its own.

        Raises:
            TaskFailed: the process failed; the message has its last lines.
        """
        groups = _process_numbers(cluster)
        about = self._describe(name, case=case, environment=environment)
        about["tasks"] = {role: len(numbers) for role, numbers in groups.items()}
        return self.journal.answer(
            about,
            lambda: self._ask_chief(
                cluster if needs_cluster else None,
                name=name,
                order=self.benchmark.order(groups, case),
                environment=environment,
                timeout_s=timeout_s,
            ),
        )

    def linked_turn(
        self,
        *,
        workers: int,
        ps: int,
        megabits_per_s: float | None,
        name: str,
        case: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
    ) -> Any:
        """The same on a cluster of its own, joined by links of a rate.

        The case gets ``has_links``: whether there are such links, or tasks hold back what they
        send.
        """
        about = self._describe(name, case=case, environment=environment)
        about["tasks"] = {"worker": workers, "ps": ps, "megabits_per_s": megabits_per_s}

        def measure() -> Any:
            linked = self._linked_cluster(workers, ps, name=name, megabits_per_s=megabits_per_s)
            with linked as cluster:
                has_links = isinstance(cluster, NamespaceCluster)
                whole = {**case, "has_links": has_links}
                return self._ask_chief(
                    cluster,
                    name=name,
                    order=self.benchmark.order(_process_numbers(cluster), whole),
                    environment=environment,
                )

        return self.journal.answer(about, measure)

    def _describe(
        self, name: str, *, case: Mapping[str, Any], environment: Mapping[str, str] | None
    ) -> dict[str, Any]:
        settings = self.benchmark.order({}, case)["settings"]
        kept = {key: of for key, of in settings.items() if key not in self.benchmark.chooses}
        told = {key: of for key, of in case.items() if not key.endswith(PLACES)}
        given = dict(environment or {})
        return {"name": name, "case": told, "settings": kept, "environment": given}

    def _ask_chief(
        self,
        cluster: ServingCluster | None,
        *,
        name: str,
        order: Mapping[str, Any],
        environment: Mapping[str, str] | None,
        timeout_s: float = TURN_TIMEOUT_S,
    ) -> Any:
        kind = type(self.benchmark)
        before: tuple[str, ...] = ()
        variables = common_environment(extra=environment or {})
        variables.pop("TF_CONFIG", None)
        if cluster is not None:
            variables = task_environment(cluster.spec, "chief", 0, extra=environment or {})
            before = cluster.chief_command
        with tempfile.TemporaryDirectory(prefix="tfps-bench-") as folder:
            order_path, result_path = Path(folder) / "order.json", Path(folder) / "result.json"
            order_path.write_text(json.dumps(order))
            function = f"{kind.__module__}:{kind.__name__}.answer"
            module = ["-P", "-m", "tfps.bench.chief", function]
            chief = start_program(
                name=f"chief for {name}",
                command=[*before, sys.executable, *module, str(order_path), str(result_path)],
                environment=variables,
                log_path=self.log_dir / f"{name}.log",
            )
            try:
                status = chief.wait(timeout_s)
            finally:
                chief.kill()
            if status is None:
                raise TaskFailed(chief.report(f"did not end within {timeout_s:.0f} s"))
            if status != 0:
                raise TaskFailed(chief.report(describe_status(status)))
            return json.loads(result_path.read_text())


def run(
    benchmark: Benchmark, *, progress: Callable[[str], None], log_dir: Path, journal: TurnJournal
) -> Results:
    """Measure everything that the journal has not kept."""
    log_dir.mkdir(parents=True, exist_ok=True)
    bench = Bench(benchmark, progress, log_dir, journal)
    benchmark.run(bench)
    bench.results.kept_turns = journal.kept
    return bench.results


def _process_numbers(cluster: ServingCluster | None) -> dict[str, list[int]]:
    """Of a cluster's tasks by role."""
    if cluster is None:
        return {}
    return {
        role: [cluster.pid(role, index) for _, index, _ in cluster.spec.tasks(role)]
        for role in ("worker", "ps")
    }
