"""One exchange of a worker with a parameter server, by each carrier and from 4 KB to 64 MB.

Carriers take turns within each size. TLS is a setting of a whole task, so it has a cluster of its
own; its turns come between those of the other. Beside the bare exchange ("echo": the server sends
back what it gets), two rows at the size of the MLP of `tfps bench throughput` say what a server's
work costs. They are steps of a real `fit` over `direct` whose model computes nothing: "+ ledger"
adds the mutex, version, ticket check, histograms of staleness and durations and the metrics of a
push, and the worker's loop around it; "+ Adam update" adds the optimizer. The CPU of the parameter
server tells what of that is the server's. At 25 million parameters the whole push is compared with
what it cannot do without: the echo, and one pass of Adam in a process of its own.
"""

from __future__ import annotations

import math
import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

import tfps
from tfps.bench.case import Case
from tfps.bench.certificates import can_make_certificates, make_certificates
from tfps.bench.report import Bar, Spread
from tfps.bench.results import Results
from tfps.bench.runner import Bench, Benchmark, TaskNumbers
from tfps.bench.style import BLUE, GREY, INK
from tfps.bench.table import case_table, number_text, spread_text
from tfps.bench.usage import EpochClock, Sample
from tfps.bench.workload import MODELS
from tfps.launch import LocalCluster
from tfps.transport.direct.secret import SECRET_VARIABLE

MLP_BYTES, LARGE_BYTES = MODELS["mlp"].size_bytes, MODELS["large"].size_bytes
LARGE_AIM = 1.3
TRIAL_EXCHANGES = 4
TRIAL_STEPS = 500
STEPS_PER_EXECUTION = 50
# The first traces and connects, the next gives a rate, the last a better one.
WARM_UPS = 3


@dataclass(frozen=True)
class CarrierKind:
    """A way of a message.

    Args:
        title: in tables and plots.
        colour: ours is blue, darkest where it is fastest; TensorFlow's is grey.
        marker: in plots.
        encrypts: the tasks have certificates.
    """

    title: str
    colour: str
    marker: str
    encrypts: bool = False


CARRIERS = {
    "unix": CarrierKind("direct, unix", "#0b4ea2", "o"),
    "tcp": CarrierKind("direct, TCP", "#4b93e6", "s"),
    "tls": CarrierKind("direct, TLS", "#a3c5ef", "^", encrypts=True),
    "grpc": CarrierKind("grpc", "#7d8794", "D"),
}
# What a server does with a message, by its size.
WORK: Mapping[int, Mapping[str, str]] = {
    MLP_BYTES: {"echo": "echo", "ledger": "+ ledger", "adam": "+ Adam update"},
    LARGE_BYTES: {"echo": "echo", "pass": "a pass of Adam", "adam": "push with Adam"},
}
NUMBERS: Mapping[str, Callable[[Case], str]] = {
    "ms per\nexchange": lambda case: spread_text(ms(case)),
    "CPU ms": lambda case: spread_text(case.cpu_ms_per_step),
    "worker's": lambda case: number_text(group_cpu_ms(case, "worker").median),
    "ps's": lambda case: number_text(group_cpu_ms(case, "ps").median),
}
Run = Callable[[int, EpochClock], None]


@dataclass(frozen=True)
class Transport(Benchmark):
    """Time and CPU of one exchange with a parameter server, by carrier, from 4 KB to 64 MB.

    Says too what a server's ledger and its optimizer add to an exchange: about 6 minutes on two
    cores. With the `openssl` command there are rows for encrypted connections.

    Args:
        sizes_bytes: of the payload, up and down.
        repetitions: turns of each cluster; each is a fresh chief process.
        rounds: measurements of each case in a turn.
        measured_s: how long a measurement takes, about.
        large_pushes: of 100 MB in a measurement, at least: an epoch's beginning takes fresh memory
            for its messages, which is not what is asked for.
    """

    name = "transport"

    sizes_bytes: Sequence[int] = (4_000, 64_000, MLP_BYTES, 4_000_000, 16_000_000, 64_000_000)
    rounds: int = 2
    measured_s: float = 0.5
    large_pushes: int = 32

    def quick(self) -> Transport:
        sizes_bytes = (4_000, MLP_BYTES)
        return replace(
            self, sizes_bytes=sizes_bytes, repetitions=1, rounds=1, measured_s=0.05, large_pushes=4
        )

    @property
    def turns(self) -> int:
        return self.repetitions * (1 + can_make_certificates())

    def run(self, bench: Bench) -> None:
        """Measure on a cluster for each of encrypted and plain connections.

        Without the `openssl` command there are no rows with TLS.
        """
        with tempfile.TemporaryDirectory(prefix="tfps-bench-") as folder, ExitStack() as stack:
            sites = [
                (encrypts, environment, stack.enter_context(_cluster(bench, environment)))
                for encrypts, environment in _environments(Path(folder)).items()
            ]
            for _ in range(self.repetitions):
                for encrypts, environment, cluster in sites:
                    carriers = [name for name, c in CARRIERS.items() if c.encrypts == encrypts]
                    bench.progress(", ".join(CARRIERS[name].title for name in carriers))
                    entries = bench.turn(
                        cluster,
                        name="transport_tls" if encrypts else "transport",
                        case={"carriers": carriers, "has_work": not encrypts},
                        environment=environment,
                    )
                    for entry in entries:
                        bench.results.add({"samples": [entry.pop("sample")]}, **entry)

    def measure(self, tasks: TaskNumbers, *, carriers: Sequence[str], has_work: bool) -> Any:
        """Exchange by some carriers, with whole steps that compute nothing too if wanted."""
        from tfps.bench.echo import Echo
        from tfps.bench.still_model import adam_pass, still_fit

        strategy = tfps.ParameterServerStrategy(transport="direct")
        echo = Echo(strategy.runtime)
        found: list[dict[str, Any]] = []
        for size_bytes in self.sizes_bytes:
            runs = {name: echo.loop(name, size_bytes) for name in carriers}
            for name, samples in self._take_turns(runs, tasks, trial=TRIAL_EXCHANGES).items():
                found += [_entry("echo", name, size_bytes, sample) for sample in samples]
            echo.forget()
        if has_work:
            mlp, large = MODELS["mlp"].shapes, MODELS["large"].shapes
            steps = {"steps_per_execution": STEPS_PER_EXECUTION}
            small_runs = {
                "ledger": still_fit(strategy, mlp, updates=False, **steps),
                "adam": still_fit(strategy, mlp, updates=True, **steps),
            }
            large_runs = {
                "echo": echo.loop("unix", LARGE_BYTES),
                "pass": adam_pass(LARGE_BYTES // 4),
                "adam": still_fit(strategy, large, updates=True, steps_per_execution=4),
            }
            for runs, size_bytes, trial in (
                (small_runs, MLP_BYTES, TRIAL_STEPS),
                (large_runs, LARGE_BYTES, self.large_pushes),
            ):
                for row, samples in self._take_turns(runs, tasks, trial=trial).items():
                    found += [_entry(row, "unix", size_bytes, sample) for sample in samples]
        return found

    def _take_turns(
        self, runs: Mapping[str, Run], tasks: TaskNumbers, *, trial: int
    ) -> dict[str, list[Sample]]:
        counts = {}
        for name, run in runs.items():
            clock = tasks.clock()
            counts[name] = trial
            for _ in range(WARM_UPS):
                run(counts[name], clock)
                wanted = clock.samples[-1].steps_per_s * self.measured_s
                counts[name] = max(trial, math.ceil(wanted))
        clocks = {name: tasks.clock() for name in runs}
        for _ in range(self.rounds):
            for name, run in runs.items():
                run(counts[name], clocks[name])
        return {name: clock.samples for name, clock in clocks.items()}

    def cases(self, results: Results) -> list[Case]:
        others = [case for size in WORK for case in work(results, size) if case["row"] != "echo"]
        return [*echoes(results), *others]

    def quantities(self, results: Results, case: Case) -> dict[str, Any]:
        return {
            "ms_per_exchange": ms(case),
            "cpu_ms_per_exchange": case.cpu_ms_per_step,
            "worker_cpu_ms_per_exchange": group_cpu_ms(case, "worker"),
            "ps_cpu_ms_per_exchange": group_cpu_ms(case, "ps"),
            "other_cores": round(case.other_cores, 2),
        }

    def bars(self, results: Results) -> list[Bar]:
        found = {case["row"]: ms(case).median for case in work(results, LARGE_BYTES)}
        is_whole = set(found) == set(WORK[LARGE_BYTES])
        value = found["adam"] / (found["echo"] + found["pass"]) if is_whole else None
        size = size_text(LARGE_BYTES)
        name = f"a push of {size} with Adam over an echo of {size} and a pass of Adam"
        return [Bar(name, value, LARGE_AIM, is_cost=True)]

    def tables(self, results: Results) -> list[Table]:
        cases = echoes(results)
        first = {case["size_bytes"]: case for case in reversed(cases)}
        columns: dict[str, Callable[[Case], str]] = {
            "size": lambda case: (
                size_text(case["size_bytes"]) if case is first[case["size_bytes"]] else ""
            ),
            **NUMBERS,
        }
        title = "One exchange with one parameter server"
        names = [CARRIERS[case["carrier"]].title for case in cases]
        by_size = case_table(title, names, cases, columns)
        tables = [by_size]
        for size, titles in WORK.items():
            title = f"What a server does with {size_text(size)}, direct over a unix socket"
            cases = work(results, size)
            names = [titles[case["row"]] for case in cases]
            tables.append(case_table(title, names, cases, NUMBERS))
        return tables

    def explanation(self, results: Results) -> str:
        return (
            "Medians (minimum-maximum) of one exchange: a request up, and a reply of the same size "
            "down. CPU of all processes. direct goes over a unix socket within a machine, over TCP "
            "between machines, with TLS where tasks have certificates. What stands below echo are "
            "steps of a fit that computes nothing; a pass of Adam is TensorFlow's own kernel in "
            "the chief."
        )

    def draw(self, results: Results, path: Path) -> None:
        """Draw time and CPU of an exchange over its size, and what a server's work adds."""
        from tfps.bench.picture import picture

        with picture(path, 1, 4, size=(17.5, 5.0)) as (_, axes):
            times, costs, *works = axes[0]
            _by_size(times, echoes(results), ms, title="Time of an exchange, ms")
            title = "CPU of an exchange, ms, all processes"
            _by_size(costs, echoes(results), lambda case: case.cpu_ms_per_step, title=title)
            for axis, size in zip(works, WORK, strict=True):
                _by_work(axis, work(results, size), size)
            for axis in (times, works[0]):
                # Below the axis: curves and bars may be anywhere inside.
                axis.legend(
                    frameon=False,
                    fontsize=8.5,
                    labelcolor=INK,
                    loc="upper left",
                    bbox_to_anchor=(0.0, -0.15),
                    ncols=2,
                )


def _environments(folder: Path) -> dict[bool, dict[str, str]]:
    """The variables of each cluster's tasks, by whether it encrypts."""
    # The chief takes it from there too, and need not ask the strategy for the one that it made.
    plain = {SECRET_VARIABLE: secrets.token_hex(32)}
    if not can_make_certificates():
        return {False: plain}
    return {False: plain, True: plain | make_certificates(folder)}


def _cluster(bench: Bench, environment: Mapping[str, str]) -> LocalCluster:
    name = "cluster-tls" if len(environment) > 1 else "cluster"
    return bench.cluster(1, 1, name=name, environment=environment)


def _entry(row: str, carrier: str, size_bytes: int, sample: Sample) -> dict[str, Any]:
    return {"row": row, "carrier": carrier, "size_bytes": size_bytes, "sample": asdict(sample)}


def _by_size(
    axis: Any, cases: Sequence[Case], quantity: Callable[[Case], Spread], *, title: str
) -> None:
    from tfps.bench.picture import name_axis

    for name, carrier in CARRIERS.items():
        own = [case for case in cases if case["carrier"] == name]
        if not own:
            continue
        sizes = [case["size_bytes"] for case in own]
        spreads = [quantity(case) for case in own]
        axis.plot(
            sizes,
            [spread.median for spread in spreads],
            color=carrier.colour,
            marker=carrier.marker,
            markersize=5,
            linewidth=1.6,
            label=carrier.title,
        )
        ends = [s.minimum for s in spreads], [s.maximum for s in spreads]
        axis.vlines(sizes, *ends, color=carrier.colour, linewidth=1)
    axis.set_xscale("log")
    axis.set_yscale("log")
    ticks = sorted({case["size_bytes"] for case in cases})
    axis.set_xticks(ticks, [size_text(size) for size in ticks], fontsize=8)
    axis.minorticks_off()
    axis.tick_params(axis="y", labelsize=8)
    axis.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axis.grid(axis="y", color="#e4e7eb", linewidth=0.8)
    name_axis(axis, title=title, label="payload, up and down: below is better")


def _by_work(axis: Any, cases: Sequence[Case], size_bytes: int) -> None:
    """Two bars a row: the clock, and the CPU with the server's part of it."""
    from tfps.bench.picture import draw_spread, name_axis, name_rows

    for row, case in enumerate(cases):
        # One row is enough for the legend.
        labels = ("time", "CPU, all processes", "CPU, parameter server")
        time, cpu, server = labels if row == 0 else (None, None, None)
        draw_spread(axis, row - 0.2, ms(case), colour=BLUE[1], height=0.36, label=time)
        cpu_ms = case.cpu_ms_per_step
        draw_spread(axis, row + 0.2, cpu_ms, colour=GREY[0], height=0.36, label=cpu)
        server_ms = group_cpu_ms(case, "ps").median
        axis.barh(row + 0.2, server_ms, 0.36, color=GREY[1], label=server)
    name_rows(axis, [WORK[size_bytes][case["row"]] for case in cases], margin=0.18)
    axis.set_xlim(left=0)
    title = f"A push of {size_text(size_bytes)}, direct over unix: ms"
    name_axis(axis, title=title, label="less is better")


def ms(case: Case) -> Spread:
    """Of one exchange."""
    return case.spread_of_samples(lambda sample: 1e3 / sample.steps_per_s)


def group_cpu_ms(case: Case, group: str) -> Spread:
    """Of one exchange, the processes of one role: ``"worker"`` or ``"ps"``."""
    return case.spread_of_samples(lambda sample: sample.group_cpu_ms_per_step(group))


def echoes(results: Results) -> list[Case]:
    """Bare exchanges: by size, then in the carriers' order."""
    order = list(CARRIERS)
    return sorted(
        results.of(row="echo"),
        key=lambda case: (case["size_bytes"], order.index(case["carrier"])),
    )


def work(results: Results, size_bytes: int) -> list[Case]:
    """What a push of a size costs, from the bare exchange to the whole of it."""
    found = (results.find(row, "unix", size_bytes) for row in WORK[size_bytes])
    return [case for case in found if case is not None]


def size_text(size_bytes: int) -> str:
    """A size with its unit, powers of ten.

    Example:

    >>> size_text(407_080), size_text(64_000_000)
    ('407 KB', '64 MB')
    """
    if size_bytes >= 1_000_000:
        return f"{size_bytes / 1e6:.0f} MB"
    return f"{size_bytes / 1e3:.0f} KB"
