"""The accuracy that stale gradients cost, and the optimizers that win it back.

The plain optimizers and the synchronous trainings choose a learning rate of their own, too: a
discount of gradients that are all about equally stale does little that a smaller learning rate does
not, and would look better than it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import click
from rich.table import Table
from rich.text import Text

import tfps
from benchmarks import contestant_runs as runs
from benchmarks.benchmark import Benchmark, Order, grouped
from benchmarks.contestant_runs import (
    SCHEDULED,
    SCHEDULED_SYNCHRONOUS,
    SYNCHRONOUS,
    base_of,
    fresh_scenario,
    minus_plain,
    minus_synchronous,
)
from benchmarks.contestant_trainings import ContestantTrainings
from benchmarks.contestants import BASES, CONTESTANTS
from benchmarks.images import LabelledImages, image_paths
from benchmarks.interval import points_text
from benchmarks.picture import BLUE, GREY, INK, name_axis, picture
from benchmarks.results import Bar, Case, Measure, Results, Spread
from benchmarks.settings import IMAGES, REPETITIONS, choices, option
from benchmarks.slow_input import Delay
from benchmarks.staleness_counts import draw_staleness, mean_staleness, shares, staleness_of
from benchmarks.table import case_table, columns_of
from benchmarks.turn import TaskNumbers, Turn
from benchmarks.turnstile import PushScenario

FORCED, SLOW = "forced", "slow"  # the scenarios with stale gradients
STALE = (FORCED, SLOW, SCHEDULED)
FRESH = (SYNCHRONOUS, SCHEDULED_SYNCHRONOUS)
TURN_TIMEOUT_S = 5400.0  # more than a hundred trainings
SHARE_AIM = 0.8  # of the gradients that lack as many updates as was wanted
GAP_AIM = 0.5  # points that the best optimizer may end below synchronous training
SCHEDULED_GAP_AIM = 2.5  # the same if the learning rate follows a schedule
RARE = 1e-3  # of the gradients; a staleness that is rarer is not drawn


@dataclass(frozen=True)
class Staleness(Benchmark):
    """Measure the accuracy that stale gradients cost against synchronous training, by optimizer.

    Every gradient lacks 16 updates, or one of eight workers takes five times as long; the first
    also with a learning rate that warms up and falls along a cosine. The order of pushes is given,
    so a busy machine changes nothing. Each optimizer has the best learning rate of a grid: hours on
    two cores; `--optimizer` tries some.
    """

    name = "staleness"
    chooses = ("contestants",)
    order: ClassVar[Order] = {"scenario": (*FRESH, *STALE)}

    contestants: tuple[str, ...] = choices(
        CONTESTANTS, "Only this one; may be repeated.", flag="--optimizer"
    )
    forced_updates: int = option(
        16, "Updates of others that every gradient lacks where all do.", click.IntRange(min=1)
    )
    workers: int = 8  # in the other one
    slow_factor: float = 5.0  # how many times as long one of them takes
    spread: float = 0.3  # how far their steps vary, as a share of their length
    sharers: int = 4  # workers that share each batch of synchronous training
    # What staleness costs in a training that stops well before its end is another question.
    updates: int = option(2400, "Updates of each training.", click.IntRange(min=60))
    batch_size: int = 64
    validation_images: int = 1000  # the last of the training images, for the learning rates
    repetitions: int = field(default=10, metadata=REPETITIONS)
    rates: int | None = None  # how many of a base's learning rates, from the middle; None: all
    images: Path | None = field(default=None, metadata=IMAGES)

    def quick(self) -> Staleness:
        few = ("sgd", "sgd_exponential")
        small = replace(self, forced_updates=3, workers=3, sharers=2, updates=60)
        return replace(small, contestants=few, repetitions=2, rates=2)

    @property
    def scenarios(self) -> dict[str, PushScenario]:
        slow = Delay(1.0, slow_worker=0, slow_factor=self.slow_factor, spread=self.spread)
        every = f"every gradient lacks {self.forced_updates} updates"
        one = f"one of {self.workers} workers takes {self.slow_factor:g} times as long"
        return {
            SYNCHRONOUS: PushScenario("synchronous", self.sharers, is_shared=True),
            FORCED: PushScenario(every, self.forced_updates + 1),
            SLOW: PushScenario(one, self.workers, slow),
            SCHEDULED_SYNCHRONOUS: PushScenario(
                "synchronous with a schedule", self.sharers, is_shared=True, is_scheduled=True
            ),
            SCHEDULED: PushScenario(
                f"{every}, with a schedule", self.forced_updates + 1, is_scheduled=True
            ),
        }

    def rates_of(self, base: str) -> tuple[float, ...]:
        """Return the learning rates that the contestants of a base try."""
        rates = BASES[base].rates
        count = len(rates) if self.rates is None else min(self.rates, len(rates))
        begin = (len(rates) - count) // 2
        return rates[begin : begin + count]

    def plan(self, folder: Path) -> Iterator[Turn]:
        images_path = image_paths(self.images, folder)["images_path"]
        for base, names in by_base(self.contestants).items():
            for scenario, described in self.scenarios.items():
                trained = [base] if scenario in FRESH else names
                case = {"scenario": scenario, "base": base, "contestants": trained}
                yield Turn(
                    title=f"{CONTESTANTS[base].title}, {described.title}",
                    name=f"{base}_{scenario}",
                    case=case | {"images_path": images_path},
                    timeout_s=TURN_TIMEOUT_S,
                )

    def measure(
        self,
        tasks: TaskNumbers,
        *,
        scenario: str,
        base: str,
        contestants: Sequence[str],
        images_path: str,
    ) -> Any:
        """Try the learning rates, then train each contestant with its best one and every seed.

        The result has the accuracies and the staleness of each training.
        """
        del tasks  # all are of this process
        pushed = self.scenarios[scenario]
        mode = tfps.Synchronous() if pushed.is_shared else tfps.Asynchronous()
        # Nothing of TensorFlow may be used before it.
        with tfps.testing.InProcessCluster(workers=pushed.workers, ps=1) as cluster:
            trainings = ContestantTrainings(
                strategy=tfps.ParameterServerStrategy(cluster.cluster_resolver, consistency=mode),
                scenario=pushed,
                data=LabelledImages.load(images_path),
                held=self.validation_images,
                batch_size=self.batch_size,
                updates=self.updates,
            )
            results = []
            for name in contestants:
                tried = [
                    trainings.train(name, rate, runs.TUNING_SEED) for rate in self.rates_of(base)
                ]
                best = runs.best_rate(tried)
                results += [*tried, *(trainings.train(name, best, seed) for seed in self.seeds)]
        return results

    def take(self, results: Results, turn: Turn, result: Any) -> None:
        for training in result:
            results.add(training, scenario=turn.case["scenario"], optimizer=training["contestant"])

    def measures(self, results: Results) -> list[Measure]:
        gap, gained = (partial(of, results) for of in (minus_synchronous, minus_plain))
        return [
            Measure("base", base_of),
            Measure("learning_rate", runs.learning_rate),
            Measure("is_at_edge_of_grid", self.is_at_edge),
            Measure("", self._rate_text, "learning\nrate"),
            Measure("validation_accuracy", _validation_accuracy),
            Measure("test_accuracy", _test_accuracy, "accu-\nracy %", _percent_text),
            Measure("test_accuracy_of_seed", runs.accuracies),
            Measure("minus_synchronous", gap, "minus synchronous,\npoints", points_text),
            Measure("minus_plain", gained, "minus plain,\npoints", points_text),
            Measure("mean_staleness_updates", _mean_staleness),
            Measure("staleness_updates", staleness_of),
        ]

    def entries(self, results: Results) -> list[dict[str, Any]]:
        """Without samples: speed is not measured."""
        return [
            {**case.axes, **self.compute_quantities(results, case)} for case in self.cases(results)
        ]

    def is_at_edge(self, case: Case) -> bool:
        """Return whether the best learning rate is the first or last of the grid."""
        rates = self.rates_of(base_of(case))
        return runs.learning_rate(case) in (min(rates), max(rates))

    def _rate_text(self, case: Case) -> str:
        return f"{runs.learning_rate(case):g}{'*' if self.is_at_edge(case) else ' '}"

    def bars(self, results: Results) -> list[Bar]:
        """Return the bars of the measured staleness and of the best optimizer's loss."""
        wanted = self.forced_updates
        share = shares(staleness_of(*results.select(scenario=FORCED))).get(wanted, 0.0)
        bars = [Bar(f"share of gradients that lack {wanted} updates", share, SHARE_AIM)]
        for scenario in STALE:
            best = runs.nearest(results, results.select(scenario=scenario))
            name = (
                f"{self.scenarios[scenario].title}: the best optimizer minus synchronous in "
                "points, low end of the 95 % interval"
            )
            aim = SCHEDULED_GAP_AIM if scenario == SCHEDULED else GAP_AIM
            bars.append(Bar(name, best and 100 * best[1].low, -aim))
        return bars

    def tables(self, results: Results) -> list[Table]:
        """Return the tables of stale gradients, each below the synchronous training of its base."""
        columns = columns_of(self.measures(results))
        tables = []
        stale = [case for case in self.cases(results) if case["scenario"] in STALE]
        for title, cases in grouped(stale, self.title_of).items():
            scenario = fresh_scenario(cases[0]["scenario"])
            fresh = results.select(scenario=scenario, optimizer=base_of(cases[0]))
            names = [self.row_of(case) for case in fresh + cases]
            tables.append(case_table(title, names, fresh + cases, columns))
        return tables

    def title_of(self, case: Case) -> str:
        return f"{CONTESTANTS[base_of(case)].title}, {self.scenarios[case['scenario']].title}"

    def row_of(self, case: Case) -> str:
        is_fresh = case["scenario"] in FRESH
        return SYNCHRONOUS if is_fresh else CONTESTANTS[case["optimizer"]].title

    def explanation(self, results: Results) -> str:
        forced, slow, scheduled = (
            mean_staleness(staleness_of(*results.select(scenario=name))) for name in STALE
        )
        seeds = max(len(runs.accuracies(case)) for case in results.cases)
        return (
            f"Staleness {forced:.1f}, {slow:.1f} and {scheduled:.1f} updates in the mean. Learning "
            "rates: the best of a grid on held-out images; * is an end of the grid. Accuracy: "
            f"the median of {seeds} seeds on the test images. Differences: the mean, seed by seed, "
            "and the ends of its 95 % interval. Plain: the optimizer itself, as stale."
        )

    def verdicts(self, results: Results) -> list[Text]:
        lines = []
        for scenario in STALE:
            cases = results.select(scenario=scenario)
            lines.append(f"{self.scenarios[scenario].title.capitalize()}:")
            for base, own in grouped(cases, base_of).items():
                if results.find(scenario, base) is not None:
                    lines.append(self._better(results, base, own))
            best = runs.nearest(results, cases)
            if best is not None:
                title = title_with_base(best[0]["optimizer"])
                lines.append(f"Best: {title} minus synchronous {points_text(best[1])} points.")
        return list(map(Text, lines))

    def _better(self, results: Results, base: str, cases: Sequence[Case]) -> str:
        """Name the optimizers on a base that win something."""
        plain = CONTESTANTS[base].title
        names = [self.row_of(case) for case in cases if runs.is_better_than_plain(results, case)]
        better = f"better than plain {plain} with a learning rate of its own"
        return f"{plain}: {better}: {', '.join(names)}." if names else f"{plain}: none {better}."

    def draw(self, results: Results, path: Path) -> None:
        """Draw the gap of each optimizer to synchronous training, and how stale gradients were."""
        rows = max(len(results.select(scenario=scenario)) for scenario in STALE)
        size, ratios = (11, len(STALE) * (1.3 + 0.3 * rows)), {"width_ratios": (1.5, 1)}
        with picture(path, len(STALE), 2, size=size, gridspec_kw=ratios) as (_, axes):
            for (gaps, stale), scenario in zip(axes, STALE, strict=True):
                cases = results.select(scenario=scenario)
                _draw_gaps(gaps, results, cases, title=self.scenarios[scenario].title.capitalize())
                found = shares(staleness_of(*cases))
                bars = {value: share for value, share in found.items() if share >= RARE}
                draw_staleness(stale, [(BLUE[1], bars)], width=0.85, label="updates")
                name_axis(stale, title="Staleness")


def by_base(names: Collection[str]) -> dict[str, list[str]]:
    """Group contestants by the plain optimizer with which they are compared."""
    chosen = [name for name in CONTESTANTS if name in names]
    groups = {base: [n for n in chosen if CONTESTANTS[n].base == base] for base in BASES}
    return {base: group for base, group in groups.items() if group}


def title_with_base(name: str) -> str:
    """Return a contestant with its base."""
    base = CONTESTANTS[name].base
    title = CONTESTANTS[base].title
    return title if name == base else f"{title}, {CONTESTANTS[name].title}"


def _validation_accuracy(case: Case) -> dict[str, float]:
    return {f"{rate:g}": found for rate, found in sorted(runs.tuning(case.runs.values()).items())}


def _test_accuracy(case: Case) -> Spread:
    return Spread.from_samples(runs.accuracies(case).values())


def _mean_staleness(case: Case) -> float:
    return round(mean_staleness(staleness_of(case)), 2)


def _percent_text(accuracy: Spread) -> str:
    return f"{100 * accuracy.median:.2f}"


def _draw_gaps(axis: Any, results: Results, cases: Sequence[Case], *, title: str) -> None:
    axis.axvline(0, color=GREY[1], linewidth=1)
    axis.axvspan(-GAP_AIM, GAP_AIM, color=GREY[0], alpha=0.4, linewidth=0)
    for y, case in enumerate(cases):
        gap = minus_synchronous(results, case)
        if gap is not None:
            axis.hlines(y, 100 * gap.low, 100 * gap.high, color=INK, linewidth=1)
            colour = BLUE[1] if runs.is_better_than_plain(results, case) else GREY[1]
            axis.plot(100 * gap.mean, y, "o", color=colour, markersize=6)
    axis.set_yticks(
        range(len(cases)), [title_with_base(case["optimizer"]) for case in cases], fontsize=9
    )
    axis.set_ylim(len(cases) - 0.5, -0.5)
    axis.margins(x=0.1)
    label = (
        "test accuracy minus that of synchronous training, points: mean and 95 % interval\n"
        f"blue: better than the plain optimizer; grey band: within {GAP_AIM:g}"
    )
    name_axis(axis, title=title, label=label)
