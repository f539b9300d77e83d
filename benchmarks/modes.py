"""The modes that `python -m benchmarks consistency` compares, and what slows their workers down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tfps
from benchmarks.picture import BLUE, GREY
from benchmarks.slow_input import Delay

BOUND_STEPS = 4


@dataclass(frozen=True)
class ModeRow:
    """A mode as a row of the results: a class of `tfps` and its arguments."""

    title: str
    colour: str
    kind: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def make(self) -> Any:
        """Return the value of `consistency`; imports TensorFlow."""
        return getattr(tfps, self.kind)(**self.arguments)


ASYNCHRONOUS, BOUNDED = "asynchronous", "bounded"
SYNCHRONOUS, BACKUP = "synchronous", "backup"
BOUND = {"bound_steps": BOUND_STEPS}
MODES = {
    ASYNCHRONOUS: ModeRow("asynchronous", GREY[0], "Asynchronous"),
    BOUNDED: ModeRow(f"bounded staleness {BOUND_STEPS}", BLUE[0], "BoundedStaleness", BOUND),
    SYNCHRONOUS: ModeRow("synchronous", GREY[1], "Synchronous"),
    BACKUP: ModeRow("synchronous + backup", BLUE[1], "Synchronous", {"backup_workers": 1}),
}
FREE_MODES = (ASYNCHRONOUS, SYNCHRONOUS)  # those that are measured without waits
PERIODS_STEPS = (1, 4, 16, 64)
AVERAGED_STEPS = 16
ELASTICITY = 0.45  # 0.9 divided by the number of workers, as in the paper
LOCAL = {steps: f"local_{steps}" for steps in PERIODS_STEPS}


def _local(steps: int, title: str = "", **arguments: Any) -> ModeRow:
    given = {"period_steps": steps, **arguments}
    return ModeRow(f"local steps {steps}{title}", BLUE[1], "LocalSteps", given)


# What an exchange for several steps saves, and what it costs in accuracy.
LOCAL_MODES = {
    **{name: _local(steps) for steps, name in LOCAL.items()},
    f"local_{AVERAGED_STEPS}_synchronous": _local(
        AVERAGED_STEPS, ", averaged", synchronous_periods=True
    ),
    f"local_{AVERAGED_STEPS}_elastic": _local(AVERAGED_STEPS, ", elastic", elasticity=ELASTICITY),
}
ALL_MODES = MODES | LOCAL_MODES

STEP_S = 0.05
SLOW_FACTOR = 5.0


@dataclass(frozen=True)
class Scenario:
    """Delays as a part of the results."""

    title: str
    delay: Delay


TRANSIENT, CONSTANT, EVEN = "transient", "constant", "even"
# What the exchange costs where nothing waits, measured on a cluster of its own: for a time, and for
# a number of examples.
FREE, COUNTED = "free", "counted"
FREE_WORKERS = 2
FREE_DELAY = Delay(step_s=0.0)
SCENARIOS = {
    TRANSIENT: Scenario(
        "Each worker takes 10 times as long for 10 % of its steps",
        Delay(step_s=STEP_S, transient_share=0.1, transient_factor=10),
    ),
    CONSTANT: Scenario(
        f"One worker takes {SLOW_FACTOR:g} times as long",
        Delay(step_s=STEP_S, slow_worker=0, slow_factor=SLOW_FACTOR),
    ),
    EVEN: Scenario("All workers alike", Delay(step_s=STEP_S)),
    FREE: Scenario(f"{FREE_WORKERS} workers, steps that wait for nothing", FREE_DELAY),
    COUNTED: Scenario(f"{FREE_WORKERS} workers, nothing waits", FREE_DELAY),
}
# The one with the bound on gaps first: servers keep the largest gap since a chief began.
DELAYED: tuple[str, ...] = (TRANSIENT, CONSTANT, EVEN)
