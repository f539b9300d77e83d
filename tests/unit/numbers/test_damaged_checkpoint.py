"""Damage to any file of the newest checkpoint: the one before is restored, and that is said."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.cluster.checkpoint.small_model import small_model, small_model_on, state_of
from tests.messages import raises
from tfps.checkpoint.commit import MARKER, Folder
from tfps.errors import CheckpointDamaged

OLD, NEW = "checkpoint-000001", "checkpoint-000002"


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "one bit": _flip,
    "cut off": _truncate,
    "deleted": Path.unlink,
}


class SavedState:
    """Two checkpoints of a model, the older one with all weights 1, the newer one with 2.

    Args:
        model: whose weights are the count.
        folder: empty.
    """

    def __init__(self, model: keras.Model, folder: Path, *, shared: bool | None = None) -> None:
        self.model, self.folder = model, folder
        self.manager = tfps.CheckpointManager(model, folder, shared=shared)
        for value in (1, 2):
            self.fill(value)
            self.manager.save(epoch=value, background=False)
        self.files = sorted(entry.name for entry in (folder / NEW).iterdir())

    def fill(self, value: int) -> None:
        """Give each weight this value."""
        self.model.set_weights([np.full(w.shape, value, w.dtype) for w in self.model.get_weights()])

    def restored_epoch(self) -> int | None:
        """Restore over other values; return the epoch restored, which all values agree on."""
        self.fill(9)
        manifest = self.manager.restore_latest()
        assert manifest is not None
        (value,) = {float(v) for w in self.model.get_weights() for v in np.unique(w)}
        assert value == manifest.epoch
        return manifest.epoch


def _said(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    caplog.clear()
    return lines


def _check_each_file(
    saved: SavedState, caplog: pytest.LogCaptureFixture, damages: list[str]
) -> None:
    assert saved.restored_epoch() == 2
    assert not _said(caplog)
    for name in saved.files:
        path = saved.folder / NEW / name
        whole = path.read_bytes()
        for damage in damages:
            DAMAGES[damage](path)
            assert saved.restored_epoch() == 1, (name, damage)
            (line,) = _said(caplog)
            assert f"{saved.folder}/{NEW}" in line
            assert name.split(".")[0] in line  # of values, TensorFlow names the prefix
            assert line.endswith("; checkpoint 1 is used instead")
            path.write_bytes(whole)
    assert saved.restored_epoch() == 2


def test_in_one_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    saved = SavedState(small_model(), tmp_path)
    assert len(saved.files) == 3
    _check_each_file(saved, caplog, list(DAMAGES))


@pytest.mark.slow
@pytest.mark.parametrize("shared", [None, False], ids=["shared", "streamed"])
def test_on_servers(
    shared: bool | None,
    strategy: tfps.ParameterServerStrategy,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    saved = SavedState(small_model_on(strategy), tmp_path, shared=shared)
    assert {name[:7] for name in saved.files} == {"ps-0000", "ps-0001", MARKER[:7]}
    # What is cut off or deleted is found before any server is asked, as above.
    _check_each_file(saved, caplog, ["one bit"])


@pytest.mark.quick("values")
@pytest.mark.parametrize(
    ("damage", "finds_out"), [("one bit", True), ("cut off", False)], ids=["values", "size"]
)
def test_it_counts_for_nothing_when_others_go(
    damage: str, finds_out: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A restore compares the values; a save checks all other files by itself."""
    saved = SavedState(small_model(), tmp_path)  # keeps three
    (values,) = (tmp_path / NEW).glob("*.data-*")
    DAMAGES[damage](values)
    if finds_out:
        saved.restored_epoch()
    for epoch, there in ((3, [1, 2, 3]), (4, [1, 2, 3, 4]), (5, [2, 3, 4, 5])):
        saved.fill(epoch)
        saved.manager.save(epoch=epoch, background=False)
        assert Folder(tmp_path).numbers() == there
    assert len([line for line in _said(caplog) if NEW in line]) == 1


@pytest.mark.repeats
def test_what_is_said_of_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    saved = SavedState(small_model(), tmp_path)
    index = tmp_path / NEW / "chief-00000.index"
    size_bytes = index.stat().st_size
    _truncate(index)
    saved.restored_epoch()
    (line,) = _said(caplog)
    assert re.search(
        rf"chief-00000\.index has {size_bytes - 1} bytes with the checksum [0-9a-f]{{8}}, "
        rf"expected {size_bytes} bytes with the checksum [0-9a-f]{{8}}; checkpoint 1 is used",
        line,
    )


@pytest.mark.repeats
@pytest.mark.parametrize("names", [["chief-00000.index"], ["chief-00000.*"], [MARKER], ["*"]])
def test_files_of_another_checkpoint(
    names: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each file is whole in itself; so are all of them together."""
    saved = SavedState(small_model(), tmp_path)
    for name in names:
        for path in (tmp_path / OLD).glob(name):
            shutil.copy(path, tmp_path / NEW / path.name)
    assert saved.restored_epoch() == 1
    assert len(_said(caplog)) == 1


def test_all_damaged(tmp_path: Path) -> None:
    saved = SavedState(small_model(), tmp_path)
    _flip(tmp_path / OLD / "chief-00000.data-00000-of-00001")
    (tmp_path / NEW / MARKER).unlink()
    with raises(CheckpointDamaged, "every checkpoint in") as raised:
        saved.manager.restore_latest()
    lines = str(raised.value).splitlines()
    assert lines[1].endswith(f"{NEW}: {MARKER} is missing")
    assert OLD in lines[2]
    assert "Checksum does not match" in lines[2]
    with raises(CheckpointDamaged, "Checksum does not match"):
        saved.manager.restore(1)


@pytest.mark.rare
def test_one_without_checksums_is_restored(tmp_path: Path) -> None:
    """Earlier versions wrote it so; TensorFlow's own comparisons still apply."""
    saved = SavedState(small_model(), tmp_path)
    expected = state_of(saved.model)
    values: dict[str, Any] = json.loads((tmp_path / NEW / MARKER).read_text()) | {"format": 1}
    del values["checksum"], values["checksums"]
    (tmp_path / NEW / MARKER).write_text(json.dumps(values, indent=1))
    assert saved.restored_epoch() == 2
    for name, value in state_of(saved.model).items():
        np.testing.assert_array_equal(value, expected[name])
    _flip(tmp_path / NEW / "chief-00000.data-00000-of-00001")
    assert saved.restored_epoch() == 1
