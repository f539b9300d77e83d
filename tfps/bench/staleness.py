"""Which optimizer helps where nearly every gradient lacks 8 to 16 updates of others.

Gradients are stale because there are many workers: each of 13 takes a step of about 100 ms, spread
by 30 %, most of which it waits, and meanwhile the 12 others have pushed. So every gradient is stale
and none comes from a worker that is special, as in a large asynchronous cluster; a single slow
worker would make few gradients stale, and waiting costs no core.

Every training takes its last third of updates with a tenth of its learning rate. Each contestant
trains with every learning rate of its base's grid, the plain optimizer included, and keeps the one
with the best accuracy on images held out from training. Those then train with seeds of their own,
turn about, and are compared on the test images by differences seed by seed. A discount of gradients
that are all about equally stale does little that a smaller learning rate does not: without tuning
the plain optimizer too it would look better than it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

import tfps
from tfps.bench.accuracy import accuracy_of
from tfps.bench.contestants import BASES, CONTESTANTS
from tfps.bench.images import LabelledImages, image_files
from tfps.bench.interval import Interval
from tfps.bench.picture import BLUE, GREY, INK, name_axis, picture
from tfps.bench.results import Bar, Results, Spread
from tfps.bench.runner import Bench, Benchmark, TaskNumbers
from tfps.bench.settings import IMAGES, REPETITIONS
from tfps.bench.slow_input import Delay, SlowInput, centred
from tfps.bench.staleness_counts import (
    mean_staleness,
    share_between,
    staleness_between,
    staleness_of,
)
from tfps.bench.table import Columns, case_table

TUNE, COMPARE = "tune", "compare"  # the phases of a contestant: tries learning rates, is compared
TUNING_SEED = 0  # the others are counted from 1: no learning rate is chosen for them
TURN_TIMEOUT_S = 1800.0  # thirty trainings
WANTED_UPDATES = (8, 16)  # how stale gradients are to be
SHARE_AIM = 0.8  # of the gradients that are
MOST_ACROSS = 3  # panels of the picture
RARE = 1e-3  # of the gradients; a staleness that is rarer is not drawn


@dataclass(frozen=True)
class Staleness(Benchmark):
    """Staleness-aware optimizers against plain ones where every gradient lacks 8 to 16 updates.

    13 workers whose steps take 100 ms; each optimizer with the best learning rate of a grid. About
    35 minutes on two cores.
    """

    name = "staleness"

    contestants: Sequence[str] = tuple(CONTESTANTS)  # with each the plain optimizer of its base
    workers: int = 13  # each gradient lacks about one update of each of the others
    step_s: float = 0.1  # length of a step, about
    spread: float = 0.3  # how far its length varies, as a share of it
    updates: int = 600  # of each training
    batch_size: int = 64
    validation_images: int = 1000  # the last of the training images, for the learning rates
    repetitions: int = field(default=5, metadata=REPETITIONS)
    rates: int | None = None  # how many of a base's learning rates, from the middle; None: all
    images: Path | None = field(default=None, metadata=IMAGES)

    def quick(self) -> Staleness:
        few = ("sgd", "sgd_inverse")
        return replace(self, contestants=few, workers=4, updates=40, repetitions=2, rates=2)

    def rates_of(self, base: str) -> tuple[float, ...]:
        """The learning rates that each of its contestants tries."""
        rates = BASES[base].rates
        count = len(rates) if self.rates is None else min(self.rates, len(rates))
        begin = (len(rates) - count) // 2
        return rates[begin : begin + count]

    @property
    def turns(self) -> int:
        return 2 * len(by_base(self.contestants))

    def run(self, bench: Bench) -> None:
        with image_files(self.images) as paths, bench.cluster(self.workers, 1) as cluster:
            for base, names in by_base(self.contestants).items():
                for phase in (TUNE, COMPARE):
                    case = {"trainings": self._trainings(phase, base, names, bench), **paths}
                    name = f"{phase}_{base}"
                    answers = bench.turn(cluster, name=name, case=case, timeout_s=TURN_TIMEOUT_S)
                    for answer in answers:
                        bench.results.add(answer, optimizer=answer["contestant"], phase=phase)

    def _trainings(
        self, phase: str, base: str, names: Sequence[str], bench: Bench
    ) -> list[tuple[str, float, int]]:
        """Contestant, learning rate and seed of a turn's trainings; says which turn it is."""
        if phase == TUNE:
            bench.progress(f"{base}: learning rates of {len(names)} optimizers")
            return [(name, rate, TUNING_SEED) for rate in self.rates_of(base) for name in names]
        bench.progress(f"{base}: the best of each, {self.repetitions} seeds")
        best = {name: best_rate(bench.results, name) for name in names}
        return [(name, rate, seed) for seed in self.seeds for name, rate in best.items()]

    def measure(
        self,
        tasks: TaskNumbers,
        *,
        trainings: Sequence[tuple[str, float, int]],
        images_path: str,
        pixels_path: str,
    ) -> Any:
        """Train as ordered; the answer has the accuracies and the staleness of each training.

        The seed is that of the initial weights, the order of the images and the delays.
        """
        from tfps.bench.classifier import Classifier

        data = LabelledImages.load(images_path)
        held = self.validation_images
        validation = centred(data.images[-held:]), data.labels[-held:]
        test = centred(data.test_images), data.test_labels

        def stale(seed: int) -> Any:
            delay = Delay(step_s=self.step_s, spread=self.spread)
            labels = data.labels[:-held]
            return SlowInput(pixels_path, labels, self.batch_size, delay, seed).function()

        strategy = tfps.ParameterServerStrategy()
        classifiers: dict[str, Classifier] = {}
        answers = []
        for name, rate, seed in trainings:
            if name not in classifiers:
                classifiers[name] = Classifier(strategy, partial(CONTESTANTS[name].make, rate))
                classifiers[name].warm_up(stale(seed))
            classifier = classifiers[name]
            classifier.restore(seed)
            before = strategy.stats()
            for stretch, (updates, factor) in enumerate(stretches(self.updates)):
                classifier.model.optimizer.learning_rate = rate * factor
                classifier.train(stale(1000 * stretch + seed), steps=updates)
            weights = classifier.model.get_weights()
            answers.append(
                {
                    "contestant": name,
                    "learning_rate": rate,
                    "seed": seed,
                    "validation_accuracy": accuracy_of(weights, *validation),
                    "test_accuracy": accuracy_of(weights, *test),
                    "staleness_updates": staleness_between(before, strategy.stats()),
                }
            )
        return answers

    def is_at_edge(self, results: Results, name: str) -> bool:
        """Whether the best learning rate is an end of the grid: a better one may lie beyond."""
        rates = self.rates_of(CONTESTANTS[name].base)
        return best_rate(results, name) in (min(rates), max(rates))

    def entries(self, results: Results) -> list[dict[str, Any]]:
        groups = _compared(results).values()
        return [self._entry(results, name) for names in groups for name in names]

    def _entry(self, results: Results, name: str) -> dict[str, Any]:
        gained, rates = gain(results, name), tuning(results, name)
        counts = staleness_updates(results, optimizer=name)
        return {
            "optimizer": name,
            "base": CONTESTANTS[name].base,
            "learning_rate": best_rate(results, name),
            "is_at_edge_of_grid": self.is_at_edge(results, name),
            "validation_accuracy": {f"{rate:g}": rates[rate] for rate in sorted(rates)},
            "test_accuracy": Spread.of(accuracies(results, name).values()).as_json(),
            "test_accuracy_of_seed": accuracies(results, name),
            "minus_plain": gained and gained.as_json(),
            "mean_staleness_updates": round(mean_staleness(counts), 2),
            "staleness_updates": counts,
        }

    def bars(self, results: Results) -> list[Bar]:
        """Whether gradients were as stale as was wanted; which optimizer wins has no aim."""
        low, high = WANTED_UPDATES
        share = share_between(staleness_updates(results), low, high)
        return [Bar(f"share of gradients with a staleness of {low} to {high}", share, SHARE_AIM)]

    def tables(self, results: Results) -> list[Table]:
        def rate_text(name: str) -> str:
            return f"{best_rate(results, name):g}{'*' if self.is_at_edge(results, name) else ' '}"

        columns: Columns = {
            "learning\nrate": rate_text,
            "test accuracy, %": lambda name: accuracy_text(accuracies(results, name)),
            "minus plain,\npoints": lambda name: gain_text(gain(results, name)),
            "": lambda name: _judgement(gain(results, name)),
        }
        tables = []
        for base, names in _compared(results).items():
            title = f"{CONTESTANTS[base].title}, every gradient stale"
            tables.append(case_table(title, _titles(names), names, columns))
        return tables

    def explanation(self, results: Results) -> str:
        mean = mean_staleness(staleness_updates(results))
        seeds = len(accuracies(results, next(iter(_compared(results)))))
        return (
            f"Staleness {mean:.1f} updates in the mean. Learning rates: the best of a grid on "
            "held-out images; * is an end of the grid. Test accuracy: median (minimum-maximum) of "
            f"{seeds} seeds, and the mean difference from the plain optimizer, seed by seed, with "
            "its 95 % interval."
        )

    def verdicts(self, results: Results) -> Sequence[Text]:
        lines = []
        for base in _compared(results):
            plain = CONTESTANTS[base].title
            of_its_own = f"than plain {plain} with a learning rate of its own"
            names = ", ".join(_titles(helpers(results, base)))
            verdict = f"better {of_its_own}: {names}" if names else f"none ends better {of_its_own}"
            lines.append(Text(f"{plain}: {verdict}."))
        return lines

    def draw(self, results: Results, path: Path) -> None:
        """Draw the gain over each plain optimizer, and how stale gradients were."""
        plain = _compared(results)
        panels = len(plain) + 1
        across = min(panels, MOST_ACROSS)
        down = -(-panels // across)
        size = (3.6 * across, (1.9 + 0.45 * max(map(len, plain.values()))) * down)
        with picture(path, down, across, size=size) as (_, axes):
            for axis, (base, names) in zip(axes.flat, plain.items(), strict=False):
                _draw_gains(axis, results, base, [name for name in names if name != base])
            _draw_staleness(axes.flat[panels - 1], staleness_updates(results))
            for axis in axes.flat[panels:]:
                axis.set_axis_off()


def _titles(names: Sequence[str]) -> list[str]:
    return [CONTESTANTS[name].title for name in names]


def by_base(names: Sequence[str]) -> dict[str, list[str]]:
    """Some contestants by the plain optimizer that each is compared with."""
    groups = {base: [n for n in names if CONTESTANTS[n].base == base] for base in BASES}
    return {base: group for base, group in groups.items() if group}


def _compared(results: Results) -> dict[str, list[str]]:
    return by_base([name for name in CONTESTANTS if name in results.on("optimizer")])


def _runs(results: Results, **axes: Any) -> list[Any]:
    return [run for case in results.of(**axes) for run in case.runs.values()]


def tuning(results: Results, name: str) -> dict[float, float]:
    """Learning rate -> accuracy on the held-out images."""
    runs = _runs(results, optimizer=name, phase=TUNE)
    return {run["learning_rate"]: run["validation_accuracy"] for run in runs}


def best_rate(results: Results, name: str) -> float:
    """The learning rate with the best accuracy; the smaller one of two that are equal."""
    found = tuning(results, name)
    return min(found, key=lambda rate: (-found[rate], rate))


def accuracies(results: Results, name: str) -> dict[int, float]:
    """On the test images, by seed."""
    runs = _runs(results, optimizer=name, phase=COMPARE)
    return {run["seed"]: run["test_accuracy"] for run in runs}


def staleness_updates(results: Results, **axes: Any) -> dict[int, int]:
    """Staleness -> number of gradients, of all trainings of a contestant or of all of them."""
    return staleness_of(_runs(results, **axes))


def gain(results: Results, name: str) -> Interval | None:
    """Test accuracy minus that of the plain optimizer, seed by seed; None of itself."""
    base = CONTESTANTS[name].base
    if name == base:
        return None
    return Interval.of_seeds(accuracies(results, name), accuracies(results, base))


def helpers(results: Results, base: str) -> list[str]:
    """Those that end better than the plain optimizer with the interval's confidence."""
    gains = {name: gain(results, name) for name in _compared(results)[base]}
    return [name for name, gained in gains.items() if gained is not None and gained.low > 0]


def stretches(updates: int) -> list[tuple[int, float]]:
    """How many updates with which share of the learning rate: the last third with a tenth.

    With the rate of the beginning an accuracy at the end would be that of a chance moment.

    >>> stretches(600)
    [(400, 1.0), (200, 0.1)]
    """
    last = updates // 3
    return [(updates - last, 1.0), (last, 0.1)]


def accuracy_text(accuracies: Mapping[int, float]) -> str:
    """In per cent, the median and the ends."""
    spread = Spread.of(100 * accuracy for accuracy in accuracies.values())
    return f"{spread.median:.2f} ({spread.minimum:.2f}-{spread.maximum:.2f})"


def gain_text(gained: Interval | None) -> str:
    """A difference of accuracies in points, with its ends."""
    if gained is None:
        return ""
    return f"{100 * gained.mean:+.2f} ({100 * gained.low:+.2f} to {100 * gained.high:+.2f})"


def _judgement(gained: Interval | None) -> str:
    if gained is None:
        return ""
    if gained.low > 0:
        return "better"
    return "worse" if gained.high < 0 else "unclear"


def _draw_gains(axis: Any, results: Results, base: str, names: Sequence[str]) -> None:
    axis.axvline(0, color=GREY[1], linewidth=1)
    for y, name in enumerate(names):
        gained = gain(results, name)
        if gained is not None:
            axis.hlines(y, 100 * gained.low, 100 * gained.high, color=INK, linewidth=1)
            colour = BLUE[1] if gained.low > 0 else GREY[1]
            axis.plot(100 * gained.mean, y, "o", color=colour, markersize=7)
    labels = [f"{CONTESTANTS[name].title}\nrate {best_rate(results, name):g}" for name in names]
    axis.set_yticks(range(len(names)), labels, fontsize=9)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.margins(x=0.15)
    median, rate = Spread.of(accuracies(results, base).values()).median, best_rate(results, base)
    title = f"Against {CONTESTANTS[base].title}\n{median:.1%} with rate {rate:g}"
    name_axis(
        axis, title=title, label="test accuracy, points: right is better\nmean and 95 % interval"
    )


def _draw_staleness(axis: Any, counts: dict[int, int]) -> None:
    total = sum(counts.values())
    low, high = WANTED_UPDATES
    for value, count in counts.items():
        if count >= RARE * total:
            colour = BLUE[1] if low <= value <= high else GREY[0]
            axis.bar(value, 100 * count / total, 0.85, color=colour)
    label = f"updates; {low} to {high} were wanted"
    name_axis(axis, title="Staleness", label=label, y_label="% of gradients")
