"""Differences between a checkpoint and the model that is to be restored from it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tfps.checkpoint.manifest import SavedTensor
from tfps.errors import CheckpointError

MAX_NAMES_SHOWN = 20


def check_fit(
    stored: Mapping[str, SavedTensor], wanted: Mapping[str, SavedTensor], *, source: str
) -> None:
    """Raise an error with all differences if a checkpoint does not fit a model.

    Args:
        stored: the checkpoint's tensors, by name.
        wanted: the model's tensors, by name.
        source: the folder of the checkpoint.

    Raises:
        CheckpointError: names are missing on either side, or shapes or dtypes differ.
    """
    problems = [
        *_list_names("in the model only", wanted, wanted.keys() - stored.keys()),
        *_list_names("in the checkpoint only", stored, stored.keys() - wanted.keys()),
        *_limit_lines(
            f"{_describe(name, stored[name])} in the checkpoint, "
            f"{wanted[name].dtype} {wanted[name].shape} in the model"
            for name in stored.keys() & wanted.keys()
            if _shape_and_dtype(stored[name]) != _shape_and_dtype(wanted[name])
        ),
    ]
    if problems:
        raise CheckpointError(
            f"{source} does not fit the model; nothing was restored:\n"
            + "\n".join(f"  - {problem}" for problem in problems)
        )


def _shape_and_dtype(tensor: SavedTensor) -> tuple[tuple[int, ...], str]:
    return tensor.shape, tensor.dtype


def _describe(name: str, tensor: SavedTensor) -> str:
    return f"{name} ({tensor.path}): {tensor.dtype} {tensor.shape}"


def _list_names(where: str, tensors: Mapping[str, SavedTensor], names: Iterable[str]) -> list[str]:
    return _limit_lines(f"{where}: {_describe(name, tensors[name])}" for name in names)


def _limit_lines(lines: Iterable[str]) -> list[str]:
    """Return the first lines in order, since a different model differs in thousands of names."""
    ordered = sorted(lines)
    more = len(ordered) - MAX_NAMES_SHOWN
    return ordered[:MAX_NAMES_SHOWN] + ([f"... and {more} more"] if more > 0 else [])
