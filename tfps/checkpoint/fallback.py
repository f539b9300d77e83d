"""The choice of the checkpoint to restore if newer ones are damaged. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tfps.errors import CheckpointDamaged

Result = TypeVar("Result")


def restore_newest_undamaged(
    numbers: Sequence[int], restore: Callable[[int], Result], *, source: str
) -> tuple[Result, dict[int, str]]:
    """Restore the newest checkpoint that is not damaged.

    Args:
        numbers: the numbers of all checkpoints, the oldest first; at least one.
        restore: restores one of them.
        source: the folder of all.

    Returns:
        The result of ``restore``, and a line for each damaged one, by its number.

    Raises:
        CheckpointDamaged: all are damaged, with the reasons.

    Example:

    >>> def restore(number):
    ...     if number == 3:
    ...         raise CheckpointDamaged("checkpoint-000003: a.index is missing")
    ...     return f"restored {number}"
    >>> restore_newest_undamaged([1, 2, 3], restore, source="saved")
    ('restored 2', {3: 'checkpoint-000003: a.index is missing; checkpoint 2 is used instead'})
    """
    reasons: dict[int, str] = {}
    for number in reversed(numbers):
        try:
            restored = restore(number)
        except CheckpointDamaged as error:
            reasons[number] = str(error)
        else:
            instead = f"checkpoint {number} is used instead"
            return restored, {
                damaged: f"{reason}; {instead}" for damaged, reason in reasons.items()
            }
    raise CheckpointDamaged(
        f"every checkpoint in {source} is damaged. Copy one back from a backup, or train from "
        "scratch in another folder; do not use the present values of the model:\n"
        + "\n".join(f"  - {reason}" for reason in reasons.values())
    )
