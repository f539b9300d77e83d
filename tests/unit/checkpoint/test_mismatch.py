"""A checkpoint that does not fit is refused with all that differs."""

from __future__ import annotations

import pytest

from tests.messages import raises
from tfps.checkpoint.manifest import SavedTensor
from tfps.checkpoint.mismatch import MAX_NAMES_SHOWN, check_fit
from tfps.errors import CheckpointError
from tfps.partitioners.row_rule import Contiguous


def _tensor(*shape: int, dtype: str = "float32") -> SavedTensor:
    return SavedTensor(
        shape=shape, dtype=dtype, path="at", rule=Contiguous(shape[0], 1), servers=(0,)
    )


def test_what_fits_passes() -> None:
    tensors = {"a": _tensor(3, 2), "b": _tensor(1)}
    check_fit(tensors, dict(reversed(tensors.items())), source="here")


def test_everything_is_said_at_once() -> None:
    stored = {"a": _tensor(3, 2), "b": _tensor(1), "c": _tensor(4), "d": _tensor(5)}
    wanted = {"a": _tensor(3, 7), "b": _tensor(1, dtype="int64"), "e": _tensor(6), "d": _tensor(5)}
    with pytest.raises(CheckpointError) as raised:
        check_fit(stored, wanted, source="checkpoints/checkpoint-000001")
    assert str(raised.value).splitlines() == [
        "checkpoints/checkpoint-000001 does not fit the model; nothing was restored:",
        "  - in the model only: e (at): float32 (6,)",
        "  - in the checkpoint only: c (at): float32 (4,)",
        "  - a (at): float32 (3, 2) in the checkpoint, float32 (3, 7) in the model",
        "  - b (at): float32 (1,) in the checkpoint, int64 (1,) in the model",
    ]


def test_another_model_is_not_listed_in_full() -> None:
    stored = {f"{n:03d}": _tensor(n + 1) for n in range(MAX_NAMES_SHOWN + 3)}
    with raises(CheckpointError, "here", received="... and 3 more") as raised:
        check_fit(stored, {}, source="here")
    assert len(str(raised.value).splitlines()) == MAX_NAMES_SHOWN + 2
