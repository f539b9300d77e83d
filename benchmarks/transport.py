"""One exchange of a worker with a parameter server, by each transport and from 4 KB to 64 MB.

TLS is a setting of a whole task, so it has a cluster of its own, whose turns come between those of
the other. Two rows say what a server's work adds to the bare exchange ("echo"): they are steps of a
real `fit` whose model computes nothing.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

import tfps
from benchmarks.benchmark import Benchmark
from benchmarks.certificates import can_make_certificates, make_certificates
from benchmarks.picture import BLUE, GREY, INK, draw_curves, draw_spread, name_bars, picture
from benchmarks.results import Bar, Case, Measure, Results, Spread, cpu_ms
from benchmarks.table import Columns, case_table, columns_of, middle
from benchmarks.turn import TaskNumbers, Tasks, Turn
from benchmarks.usage import EpochClock, Sample
from benchmarks.workload import MODELS
from tfps.transport.direct.secret import SECRET_VARIABLE

MLP_BYTES, LARGE_BYTES = MODELS["mlp"].size_bytes, MODELS["large"].size_bytes
LARGE_AIM = 1.3
SUM_AIM = 1.0
TRIAL_EXCHANGES = 4
TRIAL_STEPS = 500
STEPS_PER_EXECUTION = 50
# The first traces and connects, the next gives a rate, the last a better one.
WARM_UPS = 3


@dataclass(frozen=True)
class TransportKind:
    """A way of a message; ours is blue, darkest where it is fastest; TensorFlow's is grey."""

    title: str
    colour: str
    marker: str
    encrypts: bool = False  # the tasks have certificates


TRANSPORTS = {
    "unix": TransportKind("direct, unix", "#0b4ea2", "o"),
    "tcp": TransportKind("direct, TCP", "#4b93e6", "s"),
    "tls": TransportKind("direct, TLS", "#a3c5ef", "^", encrypts=True),
    "grpc": TransportKind("grpc", "#7d8794", "D"),
}
# What a server does with a message, by its size.
WORK: Mapping[int, Mapping[str, str]] = {
    MLP_BYTES: {
        "echo": "echo",
        "ledger": "+ ledger",
        "adam": "+ Adam update",
        "sum": "sum of 2 workers",
    },
    LARGE_BYTES: {"echo": "echo", "pass": "a pass of Adam", "adam": "push with Adam"},
}


def ms(case: Case) -> Spread:
    """Return the milliseconds of one exchange."""
    return case.spread_of_samples(lambda sample: 1e3 / sample.steps_per_s)


def server_cpu_ms(case: Case) -> Spread:
    """Return the parameter server's CPU time for one exchange."""
    return case.spread_of_samples(lambda sample: sample.group_cpu_ms_per_step("ps"))


def worker_cpu_ms(case: Case) -> Spread:
    """Return the worker's CPU time for one exchange."""
    return case.spread_of_samples(lambda sample: sample.group_cpu_ms_per_step("worker"))


MEASURES = (
    Measure("ms_per_exchange", ms, "ms per\nexchange"),
    Measure("cpu_ms_per_exchange", cpu_ms, "CPU ms"),
    Measure("worker_cpu_ms_per_exchange", worker_cpu_ms, "worker's", middle),
    Measure("ps_cpu_ms_per_exchange", server_cpu_ms, "ps's", middle),
)
Run = Callable[[int, EpochClock], None]


@dataclass(frozen=True)
class Transport(Benchmark):
    """Time and CPU of one exchange with a parameter server, by transport, from 4 KB to 64 MB.

    Says too what a server's ledger and its optimizer add to an exchange: about 6 minutes on two
    cores. With the `openssl` command there are rows for encrypted connections.
    """

    name = "transport"

    # Of the payload, up and down.
    sizes_bytes: Sequence[int] = (4_000, 64_000, MLP_BYTES, 4_000_000, 16_000_000, 64_000_000)
    rounds: int = 2  # measurements of each case in a turn
    measured_s: float = 0.5  # how long a measurement takes, about
    # Of 100 MB in a measurement, at least: an epoch's beginning takes fresh memory for its
    # messages, which is not what is asked for.
    large_pushes: int = 32

    def quick(self) -> Transport:
        few = replace(self, sizes_bytes=(4_000, MLP_BYTES), large_pushes=4)
        return replace(few, repetitions=1, rounds=1, measured_s=0.05)

    def plan(self, folder: Path) -> Iterator[Turn]:
        """On a cluster for each of plain and, with `openssl`, encrypted connections."""
        # The chief takes it from there too, and need not ask the strategy for the one that it made.
        plain = {SECRET_VARIABLE: secrets.token_hex(32)}
        environments = {"transport": plain}
        if can_make_certificates():
            environments["transport_tls"] = plain | make_certificates(folder)
        for name in [*environments] * self.repetitions:
            encrypts, environment = name == "transport_tls", environments[name]
            transports = [each for each, kind in TRANSPORTS.items() if kind.encrypts == encrypts]
            yield Turn(
                title=", ".join(TRANSPORTS[each].title for each in transports),
                name=name,
                case={"transports": transports, "has_work": not encrypts},
                tasks=Tasks(workers=1, ps=1, name=f"cluster_{name}", environment=environment),
                environment=environment,
            )
            if not encrypts:
                yield Turn(
                    title="sums of two workers",
                    name="transport_sums",
                    case={"transports": [], "has_work": False, "has_sums": True},
                    tasks=Tasks(workers=2, ps=1, name="cluster_sums", environment=environment),
                    environment=environment,
                )

    def take(self, results: Results, turn: Turn, result: Any) -> None:
        for entry in result:
            results.add({"samples": [entry.pop("sample")]}, **entry)

    def measure(
        self,
        tasks: TaskNumbers,
        *,
        transports: Sequence[str],
        has_work: bool,
        has_sums: bool = False,
    ) -> Any:
        """Exchange by some transports, with whole steps that compute nothing too if wanted."""
        from benchmarks.echo import Echo
        from benchmarks.still_model import adam_pass, still_fit
        from benchmarks.sums import WorkerSums

        strategy = tfps.ParameterServerStrategy(transport="direct")
        echo = Echo(strategy.runtime)
        found: list[dict[str, Any]] = []

        def take_turns(runs: Mapping[tuple[str, str], Run], size_bytes: int, trial: int) -> None:
            for (row, transport), samples in self._samples(runs, tasks, trial=trial).items():
                place = {"row": row, "transport": transport, "size_bytes": size_bytes}
                found.extend({**place, "sample": asdict(sample)} for sample in samples)

        if has_sums:
            sums = WorkerSums(strategy.runtime).loop(MLP_BYTES)
            take_turns({("sum", "unix"): sums}, MLP_BYTES, TRIAL_EXCHANGES)
        for size_bytes in self.sizes_bytes if transports else ():
            echoes = {("echo", name): echo.loop(name, size_bytes) for name in transports}
            take_turns(echoes, size_bytes, TRIAL_EXCHANGES)
            echo.forget()
        if has_work:
            mlp, large = MODELS["mlp"].shapes, MODELS["large"].shapes
            steps = {"steps_per_execution": STEPS_PER_EXECUTION}
            small_runs = {
                ("ledger", "unix"): still_fit(strategy, mlp, updates=False, **steps),
                ("adam", "unix"): still_fit(strategy, mlp, updates=True, **steps),
            }
            large_runs = {
                ("echo", "unix"): echo.loop("unix", LARGE_BYTES),
                ("pass", "unix"): adam_pass(LARGE_BYTES // 4),
                ("adam", "unix"): still_fit(strategy, large, updates=True, steps_per_execution=4),
            }
            take_turns(small_runs, MLP_BYTES, TRIAL_STEPS)
            take_turns(large_runs, LARGE_BYTES, self.large_pushes)
        return found

    def _samples(
        self, runs: Mapping[tuple[str, str], Run], tasks: TaskNumbers, *, trial: int
    ) -> dict[tuple[str, str], list[Sample]]:
        """Return the samples of each run; runs take turns after a warm-up."""
        counts = {}
        for name, run in runs.items():
            clock = tasks.clock()
            counts[name] = trial
            for _ in range(WARM_UPS):
                run(counts[name], clock)
                wanted = clock.samples[-1].steps_per_s * self.measured_s
                counts[name] = max(trial, math.ceil(wanted))
        clocks = {name: tasks.clock() for name in runs}
        for name, run in [*runs.items()] * self.rounds:
            run(counts[name], clocks[name])
        return {name: clock.samples for name, clock in clocks.items()}

    def cases(self, results: Results) -> list[Case]:
        others = [case for size in WORK for case in work(results, size) if case["row"] != "echo"]
        return [*echoes(results), *others]

    def measures(self, results: Results) -> Sequence[Measure]:
        return MEASURES

    def bars(self, results: Results) -> list[Bar]:
        found = {case["row"]: ms(case).median for case in work(results, LARGE_BYTES)}
        is_whole = set(found) == set(WORK[LARGE_BYTES])
        value = found["adam"] / (found["echo"] + found["pass"]) if is_whole else None
        small = {case["row"]: ms(case).median for case in work(results, MLP_BYTES)}
        has_both = {"sum", "adam"} <= set(small)
        over = small["sum"] / small["adam"] if has_both else None
        name = f"{size_text(MLP_BYTES)}: the sum of two workers over a push with Adam"
        sums = Bar.cost(name, over, SUM_AIM)
        size = size_text(LARGE_BYTES)
        name = f"a push of {size} with Adam over an echo of {size} and a pass of Adam"
        return [Bar.cost(name, value, LARGE_AIM), sums]

    def tables(self, results: Results) -> list[Table]:
        numbers = columns_of(MEASURES)
        cases = echoes(results)
        first = {case["size_bytes"]: case for case in reversed(cases)}
        size: Columns = {
            "size": lambda case: (
                size_text(case["size_bytes"]) if case is first[case["size_bytes"]] else ""
            )
        }
        title = "One exchange with one parameter server"
        names = [TRANSPORTS[case["transport"]].title for case in cases]
        tables = [case_table(title, names, cases, {**size, **numbers})]
        for size_bytes, titles in WORK.items():
            title = f"What a server does with {size_text(size_bytes)}, direct over a unix socket"
            cases = work(results, size_bytes)
            tables.append(case_table(title, [titles[c["row"]] for c in cases], cases, numbers))
        return tables

    def explanation(self, results: Results) -> str:
        return (
            "Medians (minimum-maximum) of one exchange: a request up, and a reply of the same size "
            "down. CPU of all processes. direct goes over a unix socket within a machine, over TCP "
            "between machines, with TLS where tasks have certificates. What stands below echo are "
            "steps of a fit that computes nothing, and sums that workers take among themselves; a "
            "pass of Adam is TensorFlow's own kernel in the chief."
        )

    def draw(self, results: Results, path: Path) -> None:
        """Draw time and CPU of an exchange over its size, and what a server's work adds."""
        with picture(path, 1, 4, size=(17.5, 5.0)) as (_, axes):
            times, costs, *works = axes[0]
            _draw_by_size(times, echoes(results), ms, title="Time of an exchange, ms")
            title = "CPU of an exchange, ms, all processes"
            _draw_by_size(costs, echoes(results), cpu_ms, title=title)
            for axis, size in zip(works, WORK, strict=True):
                _draw_by_work(axis, work(results, size), size)
            for axis in (times, works[0]):
                # Below the axis: curves and bars may be anywhere inside.
                style: dict[str, Any] = {"frameon": False, "fontsize": 8.5, "labelcolor": INK}
                axis.legend(loc="upper left", bbox_to_anchor=(0.0, -0.15), ncols=2, **style)


def _draw_by_size(
    axis: Any, cases: Sequence[Case], quantity: Callable[[Case], Spread], *, title: str
) -> None:
    axis.set(xscale="log", yscale="log")
    curves = [
        (
            [case for case in cases if case["transport"] == name],
            {"colour": it.colour, "marker": it.marker, "markersize": 5, "label": it.title},
        )
        for name, it in TRANSPORTS.items()
    ]
    label = "payload, up and down: below is better"
    places: dict[str, Any] = {"over": "size_bytes", "named": size_text}
    draw_curves(axis, curves, quantity=quantity, title=title, label=label, **places)
    axis.yaxis.set_major_formatter(lambda y, _: f"{y:g}")


def _draw_by_work(axis: Any, cases: Sequence[Case], size_bytes: int) -> None:
    """Two bars a row: the clock, and the CPU with the server's part of it."""
    for row, case in enumerate(cases):
        # One row is enough for the legend.
        labels = ("time", "CPU, all processes", "CPU, parameter server")
        time, cpu, server = labels if row == 0 else (None, None, None)
        draw_spread(axis, row - 0.2, ms(case), colour=BLUE[1], height=0.36, label=time)
        draw_spread(axis, row + 0.2, cpu_ms(case), colour=GREY[0], height=0.36, label=cpu)
        server_ms = server_cpu_ms(case).median
        axis.barh(row + 0.2, server_ms, 0.36, color=GREY[1], label=server)
    names = [WORK[size_bytes][case["row"]] for case in cases]
    title = f"A push of {size_text(size_bytes)}, direct over unix: ms"
    name_bars(axis, names, margin=0.18, title=title, label="less is better")


def echoes(results: Results) -> list[Case]:
    """Bare exchanges: by size, then in the transports' order."""
    order = list(TRANSPORTS)
    return sorted(
        results.select(row="echo"),
        key=lambda case: (case["size_bytes"], order.index(case["transport"])),
    )


def work(results: Results, size_bytes: int) -> list[Case]:
    """Return the cases that split a push's cost, from the bare exchange to the whole push."""
    found = (results.find(row, "unix", size_bytes) for row in WORK[size_bytes])
    return [case for case in found if case is not None]


def size_text(size_bytes: int) -> str:
    """Return a size with its unit, powers of ten.

    >>> size_text(407_080), size_text(64_000_000)
    ('407 KB', '64 MB')
    """
    if size_bytes >= 1_000_000:
        return f"{size_bytes / 1e6:.0f} MB"
    return f"{size_bytes / 1e3:.0f} KB"
