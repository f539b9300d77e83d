"""What stale gradients cost against synchronous training, and which optimizers win it back.

The order of pushes is given, so it does not matter how fast a machine is or what else it does: the
workers of one process take their turns, on the same servers, with the same ledgers, as on a
cluster. In one scenario 17 workers push in turn, and every gradient lacks 16 updates, as with many
asynchronous workers that are alike. In the other one of eight workers takes five times as long, and
the order is that of their steps: few gradients are very stale, and those are of one worker.

What they are compared with is training without staleness: workers share each batch, and an update
is the mean of their gradients. All trainings with a seed have the same first weights, the same
batches in the same order and as many updates; only staleness differs.

Every training takes its last third of updates with a tenth of its learning rate. Each contestant
trains with every learning rate of its base's grid, the plain optimizer and the synchronous training
included, and keeps the one with the best accuracy on images held out from training. Those then
train with seeds of their own, and are compared on the test images by differences seed by seed. A
discount of gradients that are all about equally stale does little that a smaller learning rate does
not: without tuning the plain optimizer too it would look better than it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

import tfps
from tfps.bench.contestant_runs import (
    COMPARE,
    SYNCHRONOUS,
    TUNE,
    ContestantRuns,
    helpers,
    minus_plain,
    minus_synchronous,
    nearest,
)
from tfps.bench.contestant_trainings import ContestantTrainings, OrderedImages
from tfps.bench.contestants import BASES, CONTESTANTS
from tfps.bench.images import LabelledImages, image_files
from tfps.bench.interval import Interval
from tfps.bench.picture import BLUE, GREY, INK, name_axis, picture
from tfps.bench.push_order import PushScenario
from tfps.bench.results import Bar, Results, Spread
from tfps.bench.runner import Bench, Benchmark, TaskNumbers
from tfps.bench.settings import IMAGES, REPETITIONS, option
from tfps.bench.slow_input import Delay
from tfps.bench.staleness_counts import (
    mean_staleness,
    share_between,
    staleness_of,
)
from tfps.bench.table import Columns, case_table

FORCED, SLOW = "forced", "slow"  # the scenarios with stale gradients
TUNING_SEED = 0  # the others are counted from 1: no learning rate is chosen for them
TURN_TIMEOUT_S = 5400.0  # more than a hundred trainings
SHARE_AIM = 0.8  # of the gradients that lack as many updates as was wanted
GAP_AIM = 0.5  # points that the best optimizer may end below synchronous training
RARE = 1e-3  # of the gradients; a staleness that is rarer is not drawn


@dataclass(frozen=True)
class Staleness(Benchmark):
    """What stale gradients cost against synchronous training, by optimizer.

    Every gradient lacks 16 updates, or one of eight workers takes five times as long. The order of
    pushes is given, so a busy machine changes nothing. Each optimizer has the best learning rate of
    a grid: about two hours on two cores; `--optimizer` tries some.
    """

    name = "staleness"
    chooses = ("contestants",)

    contestants: tuple[str, ...] = option(
        tuple(CONTESTANTS),
        click.Choice(list(CONTESTANTS)),
        "Only this one; may be repeated.",
        flag="--optimizer",
        default_text="",
    )
    forced_updates: int = 16  # of others, which every gradient lacks in one scenario
    workers: int = 8  # in the other one
    slow_factor: float = 5.0  # how many times as long one of them takes
    spread: float = 0.3  # how far their steps vary, as a share of their length
    sharers: int = 4  # workers that share each batch of synchronous training
    # What staleness costs in a training that stops well before its end is another question.
    updates: int = option(2400, click.IntRange(min=60), "Updates of each training.")
    batch_size: int = 64
    validation_images: int = 1000  # the last of the training images, for the learning rates
    repetitions: int = field(default=10, metadata=REPETITIONS)
    rates: int | None = None  # how many of a base's learning rates, from the middle; None: all
    images: Path | None = field(default=None, metadata=IMAGES)

    def quick(self) -> Staleness:
        few = ("sgd", "sgd_inverse")
        small = replace(self, forced_updates=3, workers=3, sharers=2, updates=60)
        return replace(small, contestants=few, repetitions=2, rates=2)

    @property
    def scenarios(self) -> dict[str, PushScenario]:
        """Those in which gradients are stale."""
        slow = Delay(1.0, slow_worker=0, slow_factor=self.slow_factor, spread=self.spread)
        every = f"every gradient lacks {self.forced_updates} updates"
        one = f"one of {self.workers} workers takes {self.slow_factor:g} times as long"
        return {
            FORCED: PushScenario(every, self.forced_updates + 1, Delay(1.0)),
            SLOW: PushScenario(one, self.workers, slow),
        }

    def rates_of(self, base: str) -> tuple[float, ...]:
        """The learning rates that each of its contestants tries."""
        rates = BASES[base].rates
        count = len(rates) if self.rates is None else min(self.rates, len(rates))
        begin = (len(rates) - count) // 2
        return rates[begin : begin + count]

    @property
    def turns(self) -> int:
        return len(by_base(self.contestants)) * len((SYNCHRONOUS, FORCED, SLOW))

    def run(self, bench: Bench) -> None:
        with image_files(self.images) as paths:
            for base, names in by_base(self.contestants).items():
                for scenario in (SYNCHRONOUS, FORCED, SLOW):
                    title = "synchronous"
                    trained = [base]
                    if scenario != SYNCHRONOUS:
                        title, trained = self.scenarios[scenario].title, names
                    bench.progress(f"{CONTESTANTS[base].title}, {title}")
                    case = {"scenario": scenario, "base": base, "contestants": trained}
                    answers = bench.turn(
                        None,
                        name=f"{base}_{scenario}",
                        case=case | {"images_path": paths["images_path"]},
                        timeout_s=TURN_TIMEOUT_S,
                    )
                    for answer in answers:
                        axes = {"optimizer": answer["contestant"], "phase": answer["phase"]}
                        bench.results.add(answer, scenario=scenario, **axes)

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

        The answer has the accuracies and the staleness of each training.
        """
        del tasks  # all are of this process
        data = LabelledImages.load(images_path)
        is_synchronous = scenario == SYNCHRONOUS
        order = None if is_synchronous else self.scenarios[scenario]
        mode = tfps.Synchronous() if is_synchronous else tfps.Asynchronous()
        workers = self.sharers if order is None else order.workers
        # Nothing of TensorFlow may be used before it.
        with tfps.testing.OneProcess(workers=workers, ps=1) as cluster:
            strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, consistency=mode)
            images = OrderedImages(
                data=data, held=self.validation_images, workers=workers, order=order
            )
            trainings = ContestantTrainings(strategy, images, self.batch_size, self.updates)
            answers = [
                trainings.train(name, rate, TUNING_SEED) | {"phase": TUNE}
                for name in contestants
                for rate in self.rates_of(base)
            ]
            for name in contestants:
                tried = [answer for answer in answers if answer["contestant"] == name]
                rate = ContestantRuns(scenario, name, tried).best_rate
                answers += [
                    trainings.train(name, rate, seed) | {"phase": COMPARE} for seed in self.seeds
                ]
        return answers

    def is_at_edge(self, runs: ContestantRuns) -> bool:
        """Whether the best learning rate is an end of the grid: a better one may lie beyond."""
        rates = self.rates_of(CONTESTANTS[runs.name].base)
        return runs.best_rate in (min(rates), max(rates))

    def entries(self, results: Results) -> list[dict[str, Any]]:
        return [
            self._entry(results, ContestantRuns.of(results, scenario, name))
            for scenario in (SYNCHRONOUS, FORCED, SLOW)
            for names in compared(results, scenario).values()
            for name in names
        ]

    def _entry(self, results: Results, runs: ContestantRuns) -> dict[str, Any]:
        scenario, name = runs.scenario, runs.name
        gained, gap = None, None
        if scenario != SYNCHRONOUS:
            gained = minus_plain(results, scenario, name)
            gap = minus_synchronous(results, scenario, name)
        return {
            "scenario": scenario,
            "optimizer": name,
            "base": CONTESTANTS[name].base,
            "learning_rate": runs.best_rate,
            "is_at_edge_of_grid": self.is_at_edge(runs),
            "validation_accuracy": {f"{rate:g}": runs.tuning[rate] for rate in sorted(runs.tuning)},
            "test_accuracy": Spread.of(runs.accuracies.values()).as_json(),
            "test_accuracy_of_seed": runs.accuracies,
            "minus_plain": gained and gained.as_json(),
            "minus_synchronous": gap and gap.as_json(),
            "mean_staleness_updates": round(mean_staleness(runs.staleness_updates), 2),
            "staleness_updates": runs.staleness_updates,
        }

    def bars(self, results: Results) -> list[Bar]:
        """Whether gradients were as stale as was wanted, and what the best optimizer loses."""
        wanted = self.forced_updates
        share = share_between(staleness_in(results, FORCED), wanted, wanted)
        bars = [Bar(f"share of gradients that lack {wanted} updates", share, SHARE_AIM)]
        for scenario, described in self.scenarios.items():
            best = nearest(results, scenario, _names(results, scenario))
            name = (
                f"{described.title}: the best optimizer minus synchronous in points, low end of "
                "the 95 % interval"
            )
            bars.append(Bar(name, best and 100 * best[1].low, -GAP_AIM))
        return bars

    def tables(self, results: Results) -> list[Table]:
        tables = []
        for scenario, described in self.scenarios.items():
            for base, names in compared(results, scenario).items():
                fresh = ContestantRuns.of(results, SYNCHRONOUS, base)
                stale = [ContestantRuns.of(results, scenario, name) for name in names]
                title = f"{CONTESTANTS[base].title}, {described.title}"
                titles = ["synchronous", *(CONTESTANTS[name].title for name in names)]
                columns = self._columns(results, scenario)
                tables.append(case_table(title, titles, [fresh, *stale], columns))
        return tables

    def _columns(self, results: Results, scenario: str) -> Columns:
        def rate_text(runs: ContestantRuns) -> str:
            return f"{runs.best_rate:g}{'*' if self.is_at_edge(runs) else ' '}"

        def difference(compare: Any, runs: ContestantRuns) -> str:
            stale = runs.scenario == scenario
            return points_text(compare(results, scenario, runs.name) if stale else None)

        return {
            "learning\nrate": rate_text,
            "accu-\nracy %": lambda runs: accuracy_text(runs.accuracies),
            "minus synchronous,\npoints": partial(difference, minus_synchronous),
            "minus plain,\npoints": partial(difference, minus_plain),
        }

    def explanation(self, results: Results) -> str:
        means = {name: mean_staleness(staleness_in(results, name)) for name in self.scenarios}
        seeds = max(len(case.runs) for case in results.of(phase=COMPARE))
        return (
            f"Staleness {means[FORCED]:.1f} and {means[SLOW]:.1f} updates in the mean. Learning "
            "rates: the best of a grid on held-out images; * is an end of the grid. Accuracy: "
            f"the median of {seeds} seeds on the test images. Differences: the mean, seed by seed, "
            "and the ends of its 95 % interval. Plain: the optimizer itself, as stale."
        )

    def verdicts(self, results: Results) -> Sequence[Text]:
        lines = []
        for scenario, described in self.scenarios.items():
            lines.append(Text(f"{described.title[0].upper()}{described.title[1:]}:"))
            for base, names in compared(results, scenario).items():
                if base not in names:
                    continue
                plain = CONTESTANTS[base].title
                better = ", ".join(
                    CONTESTANTS[name].title for name in helpers(results, scenario, names)
                )
                of_its_own = f"than plain {plain} with a learning rate of its own"
                said = f"better {of_its_own}: {better}" if better else f"none better {of_its_own}"
                lines.append(Text(f"{plain}: {said}."))
            best = nearest(results, scenario, _names(results, scenario))
            if best is not None:
                title = f"{titled(best[0])} minus synchronous"
                lines.append(Text(f"Best: {title} {points_text(best[1])} points."))
        return lines

    def draw(self, results: Results, path: Path) -> None:
        """Draw the gap of each optimizer to synchronous training, and how stale gradients were."""
        rows = max(len(_names(results, scenario)) for scenario in self.scenarios)
        size, ratios = (11, 2 * (1.3 + 0.3 * rows)), {"width_ratios": (1.5, 1)}
        with picture(path, 2, 2, size=size, gridspec_kw=ratios) as (_, axes):
            for (gaps, counts), (scenario, described) in zip(
                axes, self.scenarios.items(), strict=True
            ):
                _draw_gaps(gaps, results, scenario, title=described.title)
                _draw_staleness(counts, staleness_in(results, scenario))


def by_base(names: Collection[str]) -> dict[str, list[str]]:
    """Some contestants, in their order, by the plain optimizer that each is compared with."""
    chosen = [name for name in CONTESTANTS if name in names]
    groups = {base: [n for n in chosen if CONTESTANTS[n].base == base] for base in BASES}
    return {base: group for base, group in groups.items() if group}


def compared(results: Results, scenario: str) -> dict[str, list[str]]:
    """What was trained in a scenario, by the plain optimizer."""
    found = {case["optimizer"] for case in results.of(scenario=scenario)}
    return by_base(found)


def _names(results: Results, scenario: str) -> list[str]:
    return [name for names in compared(results, scenario).values() for name in names]


def titled(name: str) -> str:
    """A contestant with its base."""
    base = CONTESTANTS[name].base
    title = CONTESTANTS[base].title
    return title if name == base else f"{title}, {CONTESTANTS[name].title}"


def staleness_in(results: Results, scenario: str) -> dict[int, int]:
    """Staleness -> number of gradients, of all trainings in a scenario."""
    return staleness_of(run for case in results.of(scenario=scenario) for run in case.runs.values())


def accuracy_text(accuracies: Mapping[int, float]) -> str:
    """The median in per cent."""
    return f"{100 * Spread.of(accuracies.values()).median:.2f}"


def points_text(difference: Interval | None) -> str:
    """A difference of accuracies in points, with its ends."""
    if difference is None:
        return ""
    mean, low, high = (100 * each for each in (difference.mean, difference.low, difference.high))
    return f"{mean:+.2f} ({low:+.2f}, {high:+.2f})"


def _draw_gaps(axis: Any, results: Results, scenario: str, *, title: str) -> None:
    names = _names(results, scenario)
    axis.axvline(0, color=GREY[1], linewidth=1)
    axis.axvspan(-GAP_AIM, GAP_AIM, color=GREY[0], alpha=0.4, linewidth=0)
    for y, name in enumerate(names):
        gap, gained = (of(results, scenario, name) for of in (minus_synchronous, minus_plain))
        if gap is not None:
            axis.hlines(y, 100 * gap.low, 100 * gap.high, color=INK, linewidth=1)
            is_better = gained is not None and gained.low > 0
            colour = BLUE[1] if is_better else GREY[1]
            axis.plot(100 * gap.mean, y, "o", color=colour, markersize=6)
    axis.set_yticks(range(len(names)), [titled(name) for name in names], fontsize=9)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.margins(x=0.1)
    label = (
        "test accuracy minus that of synchronous training, points: mean and 95 % interval\n"
        f"blue: better than the plain optimizer; grey band: within {GAP_AIM:g}"
    )
    name_axis(axis, title=f"{title[0].upper()}{title[1:]}", label=label)


def _draw_staleness(axis: Any, counts: dict[int, int]) -> None:
    total = sum(counts.values())
    for value, count in counts.items():
        if count >= RARE * total:
            axis.bar(value, 100 * count / total, 0.85, color=BLUE[1])
    name_axis(axis, title="Staleness", label="updates", y_label="% of gradients")
