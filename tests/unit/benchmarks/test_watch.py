from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import watch as module
from benchmarks.usage import EpochClock
from benchmarks.watch import Watch


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, for the test to set."""
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return now


def make_watch(now_s: list[float], **options: float) -> Watch:
    """Of a strategy whose two workers take a step each every tenth of a second."""

    def stats() -> Any:
        steps = round(10 * (now_s[0] - 100))
        return SimpleNamespace(worker_steps=(steps, steps))

    watch = Watch(
        strategy=SimpleNamespace(stats=stats),
        clock=EpochClock([]),
        accuracy=lambda: now_s[0] / 1000,
        **{"train_s": 2.0, "look_every_s": 0.75, **options},
    )
    watch.set_model(SimpleNamespace(stop_training=False))
    return watch


def train(watch: Watch, now_s: list[float]) -> list[bool]:
    """A step every tenth of a second; whether it is stopped after each of them."""
    stopped = []
    for batch in range(24):
        now_s[0] = 101.0 + batch / 10  # the first step is done a second after the epoch's begin
        watch.on_train_batch_end(batch)
        stopped.append(watch.model.stop_training)
    return stopped


def test_it_looks_at_its_times_and_stops_when_the_time_is_over(now_s: list[float]) -> None:
    watch = make_watch(now_s)
    stopped = train(watch, now_s)
    at_s, accuracies = zip(*watch.curve, strict=True)
    assert at_s == pytest.approx([0.0, 0.8, 1.5, 2.0])
    assert accuracies == pytest.approx([0.101, 0.1018, 0.1025, 0.103])
    assert stopped.index(True) == 20
    (sample,) = watch.clock.samples
    assert sample.steps == 2 * 20
    assert (watch.before.worker_steps[0], watch.after.worker_steps[0]) == (10, 30)


@pytest.mark.parametrize(("least_s", "end_s"), [(0.0, 0.8), (1.0, 1.5)])
def test_it_stops_at_its_goal_but_not_before_there_is_something_to_measure(
    now_s: list[float], least_s: float, end_s: float
) -> None:
    watch = make_watch(now_s, goal=0.1015, least_s=least_s)
    stopped = train(watch, now_s)
    assert stopped.index(True) == pytest.approx(10 * end_s)
    assert watch.curve[-1][0] == pytest.approx(end_s)
    assert watch.clock.samples[0].steps == pytest.approx(2 * 10 * end_s)


def test_it_ends_with_the_epoch_where_that_is_earlier(now_s: list[float]) -> None:
    watch = make_watch(now_s, train_s=math.inf, look_every_s=math.inf)
    train(watch, now_s)
    watch.on_epoch_end(0)
    watch.on_epoch_end(1)
    at_s, _ = zip(*watch.curve, strict=True)
    assert at_s == pytest.approx([0.0, 2.3])
    (sample,) = watch.clock.samples
    assert sample.steps == 2 * 23
