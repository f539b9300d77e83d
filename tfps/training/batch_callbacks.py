"""Whether a callback may see sampled batches or must run between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfps.errors import ConfigError

BATCH_HOOKS = {
    "train": ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end"),
    "test": ("on_test_batch_begin", "on_test_batch_end"),
}
SETTINGS = ("auto", "sampled", "lock_step")


def check_setting(setting: str) -> str:
    """One of `SETTINGS`.

    Raises:
        ConfigError: another value.
    """
    if setting not in SETTINGS:
        raise ConfigError(f"batch_callbacks: received {setting!r}, expected one of {SETTINGS}")
    return setting


def needs_lock_step(callbacks: Sequence[Any], *, kind: str, setting: str) -> bool:
    """Whether workers must wait for each batch's hooks.

    Keras's own callbacks only count, log or save in their batch hooks; they see sampled progress.
    A hook that somebody else wrote may read or change anything, so ``"auto"`` runs it between the
    update of its batch and the next ticket.

    Args:
        callbacks: of a `fit` or `evaluate`.
        kind: whose hooks: ``"train"`` or ``"test"``.
        setting: one of `SETTINGS`.
    """
    if setting != "auto":
        return setting == "lock_step"
    return any(_has_own_hook(callback, BATCH_HOOKS[kind]) for callback in callbacks)


def _has_own_hook(callback: Any, names: Sequence[str]) -> bool:
    for name in names:
        if name in vars(callback):  # as `LambdaCallback` has them
            return True
        method = getattr(type(callback), name, None)
        module = getattr(method, "__module__", "") or ""
        if not module.startswith(("keras.", "tfps.")):
            return True
    return False
