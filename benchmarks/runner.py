"""The run of a benchmark: its turns, each in a fresh chief process."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.benchmark import Benchmark
from benchmarks.journal import TurnJournal
from benchmarks.namespace_cluster import NamespaceCluster
from benchmarks.namespaces import NoNamespacesError, namespaces
from benchmarks.results import Results
from benchmarks.turn import Tasks, Turn
from tfps.errors import ConfigError, TaskFailed
from tfps.launch import LocalCluster
from tfps.launch.environment import common_environment, task_environment
from tfps.launch.process import describe_status, start_program
from tfps.transport.direct import RATE_VARIABLE

# How items of a case end that say where files lie: elsewhere in each run.
PLACES = ("_path", "folder")

ServingCluster: TypeAlias = LocalCluster | NamespaceCluster
# Called with the number of a turn, how many there are, and its title when it starts.
Progress: TypeAlias = Callable[[int, int, str], None]


def run(
    benchmark: Benchmark, *, progress: Progress, log_dir: Path, journal: TurnJournal
) -> Results:
    """Measure everything that the journal has not kept.

    Args:
        benchmark: which one.
        progress: is told of each turn.
        log_dir: where the chiefs and the tasks write what they have to say.
        journal: of the turns of this run, and of one that it resumes.

    Raises:
        ConfigError: a package is missing that is not always needed.
        TaskFailed: a chief failed; the message has its last lines.
    """
    if benchmark.needs_tf_keras and importlib.util.find_spec("tf_keras") is None:
        raise ConfigError(
            "TensorFlow's own strategy trains only with tf_keras, which is not installed; "
            "install it: pip install 'tfps[bench]'",
            source=f"python -m benchmarks {benchmark.name}",
        )
    log_dir.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="turns-", dir=log_dir.absolute()) as folder,
        Bench(benchmark, log_dir, journal) as bench,
    ):
        results = measure_all(benchmark, Path(folder), bench, progress=progress)
    results.kept_turns = journal.kept
    return results


def measure_all(benchmark: Benchmark, folder: Path, bench: Bench, *, progress: Progress) -> Results:
    """Run all turns, and return their results."""
    results, turns = Results(), list(benchmark.plan(folder))
    count = sum(turn.known is None for turn in turns)
    numbers = iter(range(1, count + 1))
    for place, turn in enumerate(turns):
        if turn.known is None:
            progress(next(numbers), count, turn.title)
        result = bench.get_result(turn) if turn.known is None else turn.known
        benchmark.take(results, turn, result)
        bench.end_clusters(but={later.tasks.name for later in turns[place + 1 :] if later.tasks})
    return results


@dataclass(frozen=True)
class Bench:
    """Asks chiefs, and has the clusters that go on from turn to turn; leaving it ends them."""

    benchmark: Benchmark
    log_dir: Path
    journal: TurnJournal
    _clusters: dict[str, LocalCluster] = field(default_factory=dict)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_clusters()

    def end_clusters(self, *, but: AbstractSet[str] = frozenset()) -> None:
        """End those that no later turn needs."""
        for name in self._clusters.keys() - but:
            self._clusters.pop(name).close()

    def get_result(self, turn: Turn) -> Any:
        """Return the result of a turn, from the resumed run or a new measurement."""
        case = {key: of for key, of in turn.case.items() if not key.endswith(PLACES)}
        settings = self.benchmark.settings()
        described = {
            "name": turn.name,
            "case": case,
            "settings": {k: of for k, of in settings.items() if k not in self.benchmark.chooses},
            "environment": dict(turn.environment),
            "tasks": _describe(turn.tasks),
        }
        return self.journal.get_or_measure(described, lambda: self._measure(turn))

    def _measure(self, turn: Turn) -> Any:
        case = dict(turn.case)
        if turn.is_timed:
            case["began_s"] = time.time()
        with contextlib.ExitStack() as stack:
            cluster = None
            if turn.tasks is not None:
                cluster = stack.enter_context(self._cluster(turn.name, turn.tasks))
                if turn.tasks.is_linked:
                    case["has_links"] = isinstance(cluster, NamespaceCluster)
            order = {
                "settings": self.benchmark.settings(),
                "groups": _process_numbers(cluster),
                "case": case,
            }
            return self._ask_chief(turn, cluster if turn.joins else None, order)

    @contextlib.contextmanager
    def _cluster(self, turn: str, tasks: Tasks) -> Iterator[ServingCluster]:
        """Yield the cluster on which a turn runs."""
        if tasks.is_linked:
            with self._linked_cluster(turn, tasks) as linked:
                yield linked
        elif not tasks.name:
            with self._started(tasks) as cluster:
                yield cluster
        else:
            if tasks.name not in self._clusters:
                self._clusters[tasks.name] = self._started(tasks)
            yield self._clusters[tasks.name]

    def _started(self, tasks: Tasks) -> LocalCluster:
        log_dir = self.log_dir / (tasks.name or "cluster")
        cluster = LocalCluster(
            tasks.workers, tasks.ps, log_dir=log_dir, environment=tasks.environment
        )
        tasks.prepare(cluster)
        return cluster

    @contextlib.contextmanager
    def _linked_cluster(self, name: str, tasks: Tasks) -> Iterator[ServingCluster]:
        """Yield a cluster of tasks with networks of their own, joined by links of a rate.

        Where this process may not make networks, it is one of this machine whose tasks hold back
        what they send over `direct`, as links of that rate would.
        """
        counts = (("chief", 1), ("worker", tasks.workers), ("ps", tasks.ps))
        every = [(kind, index) for kind, count in counts for index in range(count)]
        rate = tasks.megabits_per_s
        with contextlib.ExitStack() as stack:
            try:
                network = stack.enter_context(namespaces(every, megabits_per_s=rate))
            except NoNamespacesError:
                limit = {} if rate is None else {RATE_VARIABLE: f"{rate:g}"}
                yield stack.enter_context(self._started(replace(tasks, environment=limit)))
            else:
                yield stack.enter_context(NamespaceCluster(network, log_dir=self.log_dir / name))

    def _ask_chief(
        self, turn: Turn, cluster: ServingCluster | None, order: Mapping[str, Any]
    ) -> Any:
        kind = type(self.benchmark)
        before: tuple[str, ...] = ()
        variables = common_environment(extra=turn.environment)
        variables.pop("TF_CONFIG", None)
        if cluster is not None:
            variables = task_environment(cluster.spec, "chief", 0, extra=turn.environment)
            before = cluster.chief_command
        with tempfile.TemporaryDirectory(prefix="tfps-bench-") as folder:
            order_path, result_path = Path(folder) / "order.json", Path(folder) / "result.json"
            order_path.write_text(json.dumps(order))
            function = f"{kind.__module__}:{kind.__name__}.run_order"
            module = ["-P", "-m", "benchmarks.chief", function]
            chief = start_program(
                name=f"chief for {turn.name}",
                command=[*before, sys.executable, *module, str(order_path), str(result_path)],
                environment=variables,
                log_path=self.log_dir / f"{turn.name}.log",
            )
            try:
                status = chief.wait(turn.timeout_s)
            finally:
                chief.kill()
            if status is None:
                raise TaskFailed(chief.report(f"did not end within {turn.timeout_s:.0f} s"))
            if status != 0:
                raise TaskFailed(chief.report(describe_status(status)))
            return json.loads(result_path.read_text())


def _describe(tasks: Tasks | None) -> dict[str, Any]:
    """Return the properties of the tasks that a turn's result depends on."""
    if tasks is None:
        return {}
    counts = {"worker": tasks.workers, "ps": tasks.ps}
    return counts | ({"megabits_per_s": tasks.megabits_per_s} if tasks.is_linked else {})


def _process_numbers(cluster: ServingCluster | None) -> dict[str, list[int]]:
    """Return the process numbers of a cluster's tasks, by role."""
    if cluster is None:
        return {}
    return {
        role: [cluster.pid(role, index) for _, index, _ in cluster.spec.tasks(role)]
        for role in ("worker", "ps")
    }
