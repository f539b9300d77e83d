"""The share of one worker's rate that each of many keeps when cores are not the limit.

Each step of a real `fit` waits 50 ms for its batch before it computes and exchanges, so that
workers on two cores behave like machines of their own: what grows with their number is the traffic
to the servers, and the waiting for one another there. One worker and many take turns on two
clusters that both run all the time, idle when it is not their turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import click

import tfps
from benchmarks.benchmark import Benchmark, Order
from benchmarks.picture import BLUE, GREY, annotate, draw_spread, legend_below, name_bars, picture
from benchmarks.results import Bar, Case, Measure, Results, Spread, cpu_ms, rate
from benchmarks.settings import option
from benchmarks.slow_input import delay_elements
from benchmarks.table import ratio_text
from benchmarks.turn import TaskNumbers, Tasks, Turn
from benchmarks.usage import measured_fit
from benchmarks.workload import MODELS
from tfps.units import counted

KEPT_AIM = 0.95  # of the sum of what the workers would do alone
SERVER_CPU_AIM_MS = 0.5  # per push: one message to one server


@dataclass(frozen=True)
class Scaling(Benchmark):
    """Compare the rate of many workers with one worker's, and the servers' CPU per push.

    A step sleeps 50 ms, so workers of one machine do not fight for its cores: about 6 minutes on
    two cores, with 21 processes of half a GB.
    """

    name = "scaling"
    chooses = ("repetitions", "workers")
    order: ClassVar[Order] = {"workers": None}

    workers: int = option(16, "How many.", click.IntRange(min=2))
    ps: int = 2
    sleep_ms: float = 50.0  # of each step
    batch_size: int = 64  # examples in one worker's step
    epochs: int = 1  # measured ones in a turn, after a warm-up epoch
    steps_per_worker: int = 200  # length of an epoch

    def quick(self) -> Scaling:
        return replace(self, workers=3, repetitions=1, steps_per_worker=20)

    def plan(self, folder: Path) -> Iterator[Turn]:
        for workers in (1, self.workers) * self.repetitions:
            yield Turn(
                title=f"{counted(workers, 'worker')} + {self.ps} ps",
                name=f"scaling_{workers}",
                case={"at_once": workers},
                axes={"workers": workers, "ps": self.ps},
                tasks=Tasks(workers=workers, ps=self.ps, name=f"cluster-{workers}"),
            )

    def measure(self, tasks: TaskNumbers, *, at_once: int) -> Any:
        """Train with `at_once` workers."""
        import keras

        with tfps.ParameterServerStrategy().scope():
            model = MODELS["mlp"].compiled(keras, "adam", metrics=["accuracy"])
        steps = at_once * self.steps_per_worker
        return measured_fit(
            model,
            self._slow(),
            clock=tasks.clock(),
            steps=steps,
            steps_per_epoch=steps,
            epochs=self.epochs,
        )

    def _slow(self) -> Any:
        """Return a dataset function whose every batch takes a while without using a processor.

        The sleep is at the end of the pipeline with nothing to fetch ahead: it comes after one step
        and before the next. The images are blank: what is in a dataset function's graph goes to
        every worker once per worker, and real images would fill the machine's memory.
        """

        def dataset() -> Any:
            import tensorflow as tf

            images = tf.zeros([self.batch_size, 28, 28])
            labels = tf.zeros([self.batch_size], tf.int32)
            batches = tf.data.Dataset.from_tensors((images, labels)).repeat()
            slow = delay_elements(batches, tf.constant(int(1e3 * self.sleep_ms), tf.int64))
            options = tf.data.Options()
            # TensorFlow adds a prefetch by itself, and the sleep would pass beside the step.
            options.experimental_optimization.inject_prefetch = False
            return slow.with_options(options)

        return dataset

    def measures(self, results: Results) -> list[Measure]:
        return [
            Measure("steps_per_s", rate, "steps/s"),
            Measure("share_kept", partial(share_kept, results), "share\nkept", ratio_text),
            Measure("cpu_ms_per_step", cpu_ms, "CPU ms\nper step"),
            Measure("server_cpu_ms_per_push", server_cpu_ms_per_push, "server CPU ms\nper push"),
        ]

    def bars(self, results: Results) -> list[Bar]:
        case = self.cases(results)[-1]
        workers = case["workers"]
        title = f"{workers} workers + {case['ps']} ps"
        share = share_kept(results, case)
        of_push = server_cpu_ms_per_push(case).median
        return [
            Bar(f"{title}: share of {workers} times one worker", share, KEPT_AIM),
            Bar.cost(f"{title}: server CPU per push, ms", of_push, SERVER_CPU_AIM_MS),
        ]

    def title_of(self, case: Case) -> str:
        return f"Steps that sleep, {case['ps']} parameter servers"

    def row_of(self, case: Case) -> str:
        return counted(case["workers"], "worker")

    def explanation(self, results: Results) -> str:
        return "Medians (minimum-maximum). A push is one message to one server."

    def draw(self, results: Results, path: Path) -> None:
        """Draw steps/s beside what the workers would do alone; CPU of a server per push."""
        cases = self.cases(results)
        alone = cases[0].steps_per_s.median / cases[0]["workers"]
        size = (11, 1.8 + 0.9 * len(cases))
        with picture(path, 1, 2, size=size, sharey=True) as (figure, axes):
            rates, costs = axes[0]
            for row, case in enumerate(cases):
                ideal = case["workers"] * alone
                kept = share_kept(results, case)
                share = "" if kept is None or case["workers"] == 1 else f"  ({kept:.1%} kept)"
                rates.barh(row, ideal, 0.62, color=GREY[0], label="workers times one worker's rate")
                style: dict[str, Any] = {"colour": BLUE[1], "height": 0.38}
                text = "{:.3g}" + share
                draw_spread(
                    rates, row, case.steps_per_s, text=text, beside=ideal, label="measured", **style
                )
                draw_spread(costs, row, server_cpu_ms_per_push(case), **style)
            costs.axvline(SERVER_CPU_AIM_MS, color=GREY[1], linestyle="--", linewidth=1.2)
            aim, place = f"aim: at most {SERVER_CPU_AIM_MS:g}", (SERVER_CPU_AIM_MS, -0.62)
            annotate(costs, aim, place, (4, -2), va="top", fontsize=8.5, color=GREY[1])
            names = [f"{self.row_of(case)}\n{cases[0]['ps']} ps" for case in cases]
            for axis, title, label in (
                (rates, "Steps per second", "more is better"),
                (costs, "CPU of a server per push, ms", "less is better"),
            ):
                name_bars(axis, names, above=0.65, margin=0.25, title=title, label=label)
            legend_below(figure, rates, entries=2, columns=3, has_spreads=True)


def server_cpu_ms_per_push(case: Case) -> Spread:
    """Return the CPU time of one server for one push; a step pushes to every server."""
    return case.spread_of_samples(lambda sample: sample.group_cpu_ms_per_step("ps") / case["ps"])


def share_kept(results: Results, case: Case) -> float | None:
    """Return the median rate, divided by the number of workers and by the rate of one worker."""
    alone = results.find(1, case["ps"])
    if alone is None:
        return None
    return case.steps_per_s.median / (case["workers"] * alone.steps_per_s.median)
