"""Variables in shards, on the chief: written as they lie, read as they are wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.cluster.checkpoint.divided import RowsByShard
from tfps.checkpoint.contents import find_contents
from tfps.checkpoint.manifest import Manifest
from tfps.checkpoint.restore import fill
from tfps.checkpoint.snapshot import Snapshot
from tfps.partitioners.row_rule import RULES

ROWS = 23
KINDS = list(RULES.values())


def _make(shape: tuple[int, ...]) -> keras.Variable:
    return keras.Variable(np.zeros(shape, "float32"))


@pytest.mark.quick("(3,)-*")
@pytest.mark.parametrize("stored", KINDS)
@pytest.mark.parametrize("wanted", KINDS)
@pytest.mark.parametrize("columns", [(), (3,), (2, 2)], ids=str)
def test_another_rule_and_number(
    stored: Any,
    wanted: Any,
    columns: tuple[int, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TFPS_CHUNK_BYTES", "30")
    source = RowsByShard(stored(ROWS, 4), _make, columns=columns)
    value = np.random.default_rng(0).normal(size=source.shape).astype("float32")
    source.assign(value)
    contents = find_contents({"model/table": source})
    assert contents.tensors["model/table"].shape == source.shape
    assert len(contents.shards) == 4
    snapshot = Snapshot(contents, servers=[], shared=[])
    snapshot.take()
    source.assign(np.zeros_like(value))
    files = snapshot.write(tmp_path)
    manifest = Manifest(number=1, saved_at_s=0.0, tensors=contents.tensors, files=files)
    manifest = Manifest.from_json(manifest.to_json())
    for shards in (1, 3, 4):
        target = RowsByShard(wanted(ROWS, shards), _make, columns=columns)
        fill(find_contents({"model/table": target}), manifest, tmp_path)
        np.testing.assert_array_equal(target.numpy(), value)
