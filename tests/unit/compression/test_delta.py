"""The values that may travel as a delta, and in which modes."""

from __future__ import annotations

from typing import Any

import pytest

import tfps
from tests.messages import check_message, raises
from tfps.compression import ByPath, Cast, Delta, Identity, PushPull, Quantize, TopK
from tfps.compression.directions import without_deltas
from tfps.compression.row_codec import row_codec_of
from tfps.errors import ConfigError
from tfps.strategy.codec_limits import codec_problems

DELTAS = PushPull(pull=Delta(TopK(0.1)))


@pytest.mark.parametrize("codec", [3, TopK, Delta(TopK(0.1))], ids=repr)
def test_only_codecs_of_values_are_taken(codec: Any) -> None:
    with raises(ConfigError, "codec", received=repr(codec), remedy="TopK(0.01)"):
        Delta(codec)


def test_rows_go_as_they_are() -> None:
    assert row_codec_of(Delta(Quantize(8)), 64) is None


def test_functions_get_all_that_would_be_a_difference() -> None:
    rules = ByPath({"bias": Delta(TopK(0.1))}, otherwise=Cast(), minimum_bytes=64)
    assert without_deltas(PushPull(push=TopK(0.2), pull=rules)) == PushPull(
        push=TopK(0.2), pull=ByPath({"bias": Identity()}, otherwise=Cast(), minimum_bytes=64)
    )


@pytest.mark.parametrize(
    ("compression", "mode", "received", "remedy"),
    [
        (DELTAS, tfps.Asynchronous(), "", ""),
        (DELTAS, tfps.Synchronous(), "", ""),
        (DELTAS, tfps.LocalSteps(4), "", ""),
        (PushPull(push=Delta(TopK(0.1))), tfps.Asynchronous(), "push=Delta", "Delta for pull only"),
        (DELTAS, tfps.Synchronous(backup_workers=1), "pull=Delta", "Identity()"),
        (PushPull(pull=Cast()), tfps.Synchronous(1), "pull=Cast", "backup_workers out"),
        (PushPull(pull=TopK(0.1)), tfps.Asynchronous(), "pull=TopK", "tfps.compression.Delta"),
    ],
)
def test_what_it_goes_with(compression: PushPull, mode: Any, received: str, remedy: str) -> None:
    problems = codec_problems(compression, mode)
    assert bool(problems) == bool(received)
    if received:
        check_message("\n".join(problems), "compression: ", received=received, remedy=remedy)
