"""The modes that `tfps bench consistency` compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tfps

BOUND_STEPS = 4


@dataclass(frozen=True)
class ModeRow:
    """A mode as a row of the results.

    Args:
        title: what tables and plots call it.
        kind: the class of `tfps`.
        arguments: of that class.
        is_synchronous: whether an update is the mean of several workers' gradients.
    """

    title: str
    kind: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    is_synchronous: bool = False

    @property
    def exists(self) -> bool:
        """Whether this version of tfps has it."""
        return self.kind in tfps.__all__

    def make(self) -> Any:
        """The value of `consistency`; imports TensorFlow."""
        return getattr(tfps, self.kind)(**self.arguments)


ASYNCHRONOUS, BOUNDED, SYNCHRONOUS, BACKUP = "asynchronous", "bounded", "synchronous", "backup"
MODES = {
    ASYNCHRONOUS: ModeRow("asynchronous", "Asynchronous"),
    BOUNDED: ModeRow(
        f"bounded staleness {BOUND_STEPS}", "BoundedStaleness", {"bound_steps": BOUND_STEPS}
    ),
    SYNCHRONOUS: ModeRow("synchronous", "Synchronous", is_synchronous=True),
    BACKUP: ModeRow(
        "synchronous + backup", "Synchronous", {"backup_workers": 1}, is_synchronous=True
    ),
}
