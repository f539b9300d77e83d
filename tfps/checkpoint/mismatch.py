"""Differences between a checkpoint and the model that is to be restored from it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tfps.checkpoint.manifest import Tensor
from tfps.errors import CheckpointError

NAMES_SHOWN = 20


def check_fit(stored: Mapping[str, Tensor], wanted: Mapping[str, Tensor], *, source: str) -> None:
    """Refuse a checkpoint that does not fit, with all differences.

    Args:
        stored: the checkpoint's tensors, by name.
        wanted: the model's tensors, by name.
        source: the folder of the checkpoint.

    Raises:
        CheckpointError: names are missing on either side, or shapes or dtypes differ.
    """
    problems = [
        *_listed("in the model only", wanted, wanted.keys() - stored.keys()),
        *_listed("in the checkpoint only", stored, stored.keys() - wanted.keys()),
        *_shortened(
            f"{_described(name, stored[name])} in the checkpoint, "
            f"{wanted[name].dtype} {wanted[name].shape} in the model"
            for name in stored.keys() & wanted.keys()
            if _kind(stored[name]) != _kind(wanted[name])
        ),
    ]
    if problems:
        raise CheckpointError(
            f"{source} does not fit the model; nothing was restored:\n"
            + "\n".join(f"  - {problem}" for problem in problems)
        )


def _kind(tensor: Tensor) -> tuple[tuple[int, ...], str]:
    return tensor.shape, tensor.dtype


def _described(name: str, tensor: Tensor) -> str:
    return f"{name} ({tensor.path}): {tensor.dtype} {tensor.shape}"


def _listed(where: str, tensors: Mapping[str, Tensor], names: Iterable[str]) -> list[str]:
    return _shortened(f"{where}: {_described(name, tensors[name])}" for name in names)


def _shortened(lines: Iterable[str]) -> list[str]:
    """Return the lines in order, up to a limit, since another model has thousands."""
    ordered = sorted(lines)
    more = len(ordered) - NAMES_SHOWN
    return ordered[:NAMES_SHOWN] + ([f"... and {more} more"] if more > 0 else [])
