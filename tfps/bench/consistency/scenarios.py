"""What slows the workers down in `tfps bench consistency`."""

from __future__ import annotations

from dataclasses import dataclass

from tfps.bench.delay import Delay

STEP_S = 0.05
SLOW_FACTOR = 5.0


@dataclass(frozen=True)
class Scenario:
    """Delays as a part of the results.

    Args:
        title: what tables and plots call it.
        delay: how long steps take.
        train_share: of the time that a training with stragglers gets.
    """

    title: str
    delay: Delay
    train_share: float = 1.0


TRANSIENT, CONSTANT, EVEN = "transient", "constant", "even"
# Where nothing waits: for a time, and for a number of examples.
FREE, COUNTED = "free", "counted"
# The one with the bound on gaps first: servers keep the largest gap since a chief began.
SCENARIOS = {
    TRANSIENT: Scenario(
        "Each worker takes 10 times as long for 10 % of its steps",
        Delay(step_s=STEP_S, transient_share=0.1, transient_factor=10),
    ),
    CONSTANT: Scenario(
        f"One worker takes {SLOW_FACTOR:g} times as long",
        Delay(step_s=STEP_S, slow_worker=0, slow_factor=SLOW_FACTOR),
    ),
    EVEN: Scenario("All workers alike", Delay(step_s=STEP_S), train_share=0.4),
}
# What the exchange costs where nothing waits, measured on a cluster of its own.
FREE_WORKERS = 2
FREE_DELAY = Delay(step_s=0.0)
TITLES = {name: scenario.title for name, scenario in SCENARIOS.items()} | {
    FREE: f"{FREE_WORKERS} workers, steps that wait for nothing",
    COUNTED: f"{FREE_WORKERS} workers, nothing waits",
}
