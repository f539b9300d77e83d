"""Looking at what a coordinator has scheduled, without waiting for it."""

from __future__ import annotations

from typing import Any


def is_done(remote_value: Any) -> bool:
    """Whether `fetch` would answer, or raise, without waiting for a worker.

    Args:
        remote_value: what `ClusterCoordinator.schedule` has answered.
    """
    return bool(remote_value._status_available_event.is_set())
