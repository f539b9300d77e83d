"""The modes that `tfps bench consistency` compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tfps

BOUND_STEPS = 4
BOUND_RANGE_STEPS = (2, 8)
ADAPTIVE_BATCHES = 4


@dataclass(frozen=True)
class ModeRow:
    """A mode as a row of the results.

    Args:
        title: what tables and plots call it.
        kind: the class of `tfps`.
        arguments: of that class.
    """

    title: str
    kind: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def make(self) -> Any:
        """The value of `consistency`; imports TensorFlow."""
        return getattr(tfps, self.kind)(**self.arguments)


ASYNCHRONOUS, BOUNDED, DYNAMIC = "asynchronous", "bounded", "dynamic"
SYNCHRONOUS, BACKUP, ADAPTIVE = "synchronous", "backup", "adaptive"
MODES = {
    ASYNCHRONOUS: ModeRow("asynchronous", "Asynchronous"),
    BOUNDED: ModeRow(
        f"bounded staleness {BOUND_STEPS}", "BoundedStaleness", {"bound_steps": BOUND_STEPS}
    ),
    DYNAMIC: ModeRow(
        "dynamic bound {}-{}".format(*BOUND_RANGE_STEPS),
        "DynamicBoundedStaleness",
        dict(zip(("min_bound_steps", "max_bound_steps"), BOUND_RANGE_STEPS, strict=True)),
    ),
    SYNCHRONOUS: ModeRow("synchronous", "Synchronous"),
    BACKUP: ModeRow("synchronous + backup", "Synchronous", {"backup_workers": 1}),
    ADAPTIVE: ModeRow(
        f"adaptive batches {ADAPTIVE_BATCHES}",
        "Synchronous",
        {"adaptive_batches": ADAPTIVE_BATCHES},
    ),
}
PERIODS_STEPS = (1, 4, 16, 64)
AVERAGED_STEPS = 16
ELASTICITY = 0.45  # 0.9 divided by the number of workers, as in the paper
LOCAL = {steps: f"local_{steps}" for steps in PERIODS_STEPS}
# What an exchange for several steps saves, and what it costs in accuracy.
LOCAL_MODES = {
    **{
        name: ModeRow(f"local steps {steps}", "LocalSteps", {"period_steps": steps})
        for steps, name in LOCAL.items()
    },
    f"local_{AVERAGED_STEPS}_synchronous": ModeRow(
        f"local steps {AVERAGED_STEPS}, averaged",
        "LocalSteps",
        {"period_steps": AVERAGED_STEPS, "synchronous": True},
    ),
    f"local_{AVERAGED_STEPS}_elastic": ModeRow(
        f"local steps {AVERAGED_STEPS}, elastic",
        "LocalSteps",
        {"period_steps": AVERAGED_STEPS, "elasticity": ELASTICITY},
    ),
}
ALL_MODES = MODES | LOCAL_MODES
