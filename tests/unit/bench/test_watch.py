from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tfps.bench.consistency import watch as module
from tfps.bench.consistency.watch import Watch
from tfps.bench.usage import EpochClock


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, for the test to set."""
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return now


@pytest.fixture
def watch(now_s: list[float]) -> Watch:
    """Of a strategy whose two workers take a step each every tenth of a second."""

    def stats() -> Any:
        steps = round(10 * (now_s[0] - 100))
        return SimpleNamespace(worker_steps=(steps, steps))

    watch = Watch(
        SimpleNamespace(stats=stats),
        clock=EpochClock([]),
        accuracy=lambda: now_s[0] / 1000,
        train_s=2.0,
        look_every_s=0.75,
    )
    watch.set_model(SimpleNamespace(stop_training=False))
    return watch


def test_it_looks_at_its_times_and_stops_when_the_time_is_over(
    watch: Watch, now_s: list[float]
) -> None:
    stopped = []
    for batch in range(24):
        now_s[0] = 101.0 + batch / 10  # the first step is done a second after the epoch's begin
        watch.on_train_batch_end(batch)
        stopped.append(watch.model.stop_training)
    at_s, accuracies = zip(*watch.curve, strict=True)
    assert at_s == pytest.approx([0.0, 0.8, 1.5, 2.0])
    assert accuracies == pytest.approx([0.101, 0.1018, 0.1025, 0.103])
    assert stopped.index(True) == 20
    (sample,) = watch.clock.samples
    assert sample.steps == 2 * 20
    assert (watch.before.worker_steps[0], watch.after.worker_steps[0]) == (10, 30)
