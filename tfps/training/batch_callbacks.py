"""Decide whether a callback may see sampled batches or must run between batches."""

from __future__ import annotations

from typing import Any

from tfps.errors import ConfigError

BATCH_HOOKS = {
    "train": ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end"),
    "test": ("on_test_batch_begin", "on_test_batch_end"),
}
SETTINGS = ("auto", "sampled", "lock_step")

# Packages whose batch hooks count, log, show progress or save, and change nothing of the training.
OBSERVING_PACKAGES = frozenset(
    {
        "aim",
        "clearml",
        "comet_ml",
        "dvclive",
        "keras",
        "mlflow",
        "neptune",
        "optuna",
        "optuna_integration",
        "swanlab",
        "tensorboard",
        "tfps",
        "tqdm",
        "wandb",
    }
)


def check_setting(setting: str) -> str:
    """Return a setting that is one of `SETTINGS`.

    Raises:
        ConfigError: another value.
    """
    if setting not in SETTINGS:
        raise ConfigError(f"batch_callbacks: received {setting!r}, expected one of {SETTINGS}")
    return setting


def may_change_things(callback: Any, *, kind: str) -> bool:
    """Return whether a callback has a batch hook that may do more than observe.

    Args:
        callback: any object with hooks.
        kind: whose hooks: ``"train"`` or ``"test"``.
    """
    for name in BATCH_HOOKS[kind]:
        # `LambdaCallback` has them in the object.
        hook = vars(callback).get(name) or getattr(type(callback), name, None)
        module = getattr(hook, "__module__", "") or ""
        if module.split(".")[0] not in OBSERVING_PACKAGES:
            return True
    return False
