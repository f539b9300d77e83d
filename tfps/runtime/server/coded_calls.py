"""Checks that optimizers and codecs are compatible."""

from __future__ import annotations

from collections.abc import Sequence

from tfps.errors import UnsupportedError
from tfps.optimizers.server_update import ServerUpdate


def refuse_sender_state(updates: Sequence[ServerUpdate]) -> None:
    """Raise an `UnsupportedError` if an optimizer remembers the values sent to each worker."""
    for update in updates:
        if update.depends_on_sender:
            raise UnsupportedError(
                f"compression: received a codec for pull with {type(update.optimizer).__name__}, "
                "which keeps the exact parameters sent to each worker; expected Identity(). "
                "Leave pull out, or use another optimizer"
            )
