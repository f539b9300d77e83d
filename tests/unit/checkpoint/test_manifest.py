"""A manifest survives JSON unchanged, and a wrong one is refused with the reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.messages import raises
from tfps.checkpoint.checksum import FileChecksum, text_checksum
from tfps.checkpoint.layout import RowBlock
from tfps.checkpoint.manifest import CHIEF, FORMAT, Counters, Manifest, SavedTensor
from tfps.errors import CheckpointError
from tfps.partitioners.row_rule import RULES, ShuffledRows

COUNTS = st.integers(0, 2**60)
NAMES = st.text(min_size=1, max_size=12)


@st.composite
def tensors(draw: st.DrawFn) -> SavedTensor:
    shape = tuple(draw(st.lists(st.integers(1, 9), max_size=3)))
    rows = shape[0] if shape else 1
    rule = draw(st.sampled_from(list(RULES.values())))(rows, draw(st.integers(1, rows)))
    servers = draw(st.lists(st.integers(CHIEF, 5), min_size=1, max_size=4))
    return SavedTensor(
        shape=shape, dtype="float32", path=draw(NAMES), rule=rule, servers=tuple(servers)
    )


@st.composite
def counters(draw: st.DrawFn) -> Counters:
    per_server = st.lists(COUNTS, min_size=2, max_size=2).map(tuple)
    staleness = st.dictionaries(st.integers(0, 63), COUNTS, max_size=4)
    return Counters(
        versions=draw(per_server),
        staleness=(draw(staleness), draw(staleness)),
        gradients_dropped=draw(per_server),
        examples_seen=draw(COUNTS),
        worker_steps=tuple(draw(st.lists(COUNTS, max_size=4))),
        next_ticket=draw(COUNTS),
    )


MANIFESTS = st.builds(
    Manifest,
    number=st.integers(1, 10**7),
    saved_at_s=st.floats(0, 1e11),
    epoch=st.none() | st.integers(0, 100),
    step=st.none() | COUNTS,
    metrics=st.dictionaries(NAMES, st.floats(-1e30, 1e30), max_size=3),
    consistency=st.none() | st.text(max_size=9),
    counters=st.none() | counters(),
    package_versions=st.dictionaries(NAMES, NAMES, max_size=3),
    tensors=st.dictionaries(NAMES, tensors(), max_size=4),
    files=st.dictionaries(
        NAMES, st.lists(st.builds(RowBlock, NAMES, COUNTS, COUNTS, COUNTS)).map(tuple), max_size=3
    ),
    checksums=st.dictionaries(
        NAMES, st.builds(FileChecksum, COUNTS, st.none() | st.integers(0, 2**32 - 1)), max_size=3
    ),
)


@given(manifest=MANIFESTS)
def test_round_trip(manifest: Manifest) -> None:
    assert Manifest.from_json(manifest.to_json()) == manifest


@given(manifest=MANIFESTS, data=st.data())
def test_no_other_value_is_taken_for_it(manifest: Manifest, data: st.DataObject) -> None:
    """If any character changes, the manifest is refused or has the same content."""
    text = manifest.to_json()
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.characters(codec="utf-8")) + text[at + 1 :]
    try:
        found = Manifest.from_json(changed)
    except CheckpointError:
        return
    assert found == manifest


def test_one_of_before_checksums_is_read() -> None:
    manifest = Manifest(number=4, saved_at_s=1.5, epoch=2)
    values = json.loads(manifest.to_json()) | {"format": 1}
    del values["checksum"], values["checksums"]
    assert Manifest.from_json(json.dumps(values)) == manifest


def test_only_one_with_a_state_is_of_the_newest_format() -> None:
    """Older versions read the others, and refuse this one as of a newer format."""
    formats = []
    for state in ({}, {"epoch": 2, "metrics": [{"array": "0"}]}):
        manifest = Manifest(number=4, saved_at_s=1.5, state=state)
        formats.append(json.loads(manifest.to_json())["format"])
        assert Manifest.from_json(manifest.to_json()) == manifest
    assert formats == [2, FORMAT]


def test_shuffled_rows_are_stored_under_the_name_of_older_checkpoints() -> None:
    rule = ShuffledRows(10, 2)
    table = SavedTensor(shape=(10, 4), dtype="float32", path="e", rule=rule, servers=(0, 1))
    text = Manifest(number=1, saved_at_s=0.0, tensors={"table": table}).to_json()
    assert json.loads(text)["tensors"]["table"]["rule"] == ["scattered", 10, 2]
    assert Manifest.from_json(text).tensors["table"].rule == rule


def test_it_prints_readably() -> None:
    rule = RULES["modulo"](10, 2)
    manifest = Manifest(
        number=7,
        saved_at_s=86400.0,
        epoch=3,
        step=1200,
        metrics={"loss": 0.25},
        consistency="Asynchronous()",
        counters=Counters(
            versions=(40, 41),
            staleness=({0: 1}, {}),
            gradients_dropped=(0, 0),
            examples_seen=0,
            worker_steps=(),
            next_ticket=0,
        ),
        tensors={
            "model/embedding/embeddings": SavedTensor(
                shape=(10, 4), dtype="float32", path="e", rule=rule, servers=(0, 1)
            ),
            "seed": SavedTensor(shape=(2,), dtype="int64", path="s", rule=rule, servers=(CHIEF,)),
        },
    )
    text = str(manifest)
    assert "checkpoint 7 of 1970-01-02 00:00:00 UTC, epoch 3, step 1200, loss 0.25" in text
    assert "Asynchronous(); updates 40" in text
    assert "model/embedding/embeddings  float32 (10, 4) modulo on ps 0, ps 1" in text
    assert text.splitlines()[-1].endswith("on chief")


def _changed(**changes: Any) -> str:
    """Returns a changed manifest whose checksum is right, as another program may write it."""
    values = json.loads(Manifest(number=1, saved_at_s=0.0).to_json()) | changes
    del values["checksum"]
    sum_of_it = text_checksum(json.dumps(values, indent=1))
    return json.dumps(values | {"checksum": sum_of_it}, indent=1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "damaged"),
        ("[]", "damaged"),
        ("{}", "damaged"),
        (Manifest(number=1, saved_at_s=0.0).to_json()[:-9], "damaged"),
        (
            Manifest(number=1, saved_at_s=0.0).to_json().replace("0.0", "0.5"),
            "received the checksum",
        ),
        (_changed(format=99), "format 99"),
        (_changed(colour="red"), "colour"),
        (_changed(tensors={"a": {}}), "damaged"),
    ],
)
def test_damaged(text: str, said: str) -> None:
    with raises(CheckpointError, said):
        Manifest.from_json(text)
