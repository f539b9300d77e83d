"""The values that may travel as a difference, and in which modes."""

from __future__ import annotations

from typing import Any

import pytest

import tfps
from tfps.compression import (
    Both,
    ByPath,
    Cast,
    Difference,
    Identity,
    Quantize,
    TopK,
)
from tfps.compression.directions import without_differences
from tfps.compression.row_codec import row_codec_of
from tfps.errors import ConfigError
from tfps.strategy.codec_limits import codec_problems

DOWN = Both(down=Difference(TopK(0.1)))


@pytest.mark.parametrize("codec", [3, TopK, Difference(TopK(0.1))], ids=repr)
def test_only_codecs_of_values_are_taken(codec: Any) -> None:
    with pytest.raises(ConfigError, match=r"codec: received .*, expected a codec of values"):
        Difference(codec)


def test_rows_go_as_they_are() -> None:
    assert row_codec_of(Difference(Quantize(8)), 64) is None


def test_functions_get_all_that_would_be_a_difference() -> None:
    rules = ByPath({"bias": Difference(TopK(0.1))}, otherwise=Cast(), minimum_bytes=64)
    assert without_differences(Both(up=TopK(0.2), down=rules)) == Both(
        up=TopK(0.2), down=ByPath({"bias": Identity()}, otherwise=Cast(), minimum_bytes=64)
    )


@pytest.mark.parametrize(
    ("compression", "mode", "message"),
    [
        (DOWN, tfps.Asynchronous(), None),
        (DOWN, tfps.Synchronous(), None),
        (DOWN, tfps.LocalSteps(4), None),
        (Both(up=Difference(TopK(0.1))), tfps.Asynchronous(), "so Difference is for down"),
        (DOWN, tfps.Asynchronous(pipeline_steps=1), r"expected Identity\(\)"),
        (DOWN, tfps.Synchronous(backup_workers=1), r"expected Identity\(\)"),
        (Both(down=TopK(0.1)), tfps.Asynchronous(), "tfps.compression.Difference"),
    ],
)
def test_what_it_goes_with(compression: Both, mode: Any, message: str | None) -> None:
    problems = codec_problems(compression, mode)
    assert bool(problems) == (message is not None)
    if message is not None:
        with pytest.raises(ConfigError, match=message):
            raise ConfigError(problems, source="test")
