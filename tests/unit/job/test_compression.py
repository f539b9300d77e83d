"""`[compression]` of a job file is what the strategy takes."""

from __future__ import annotations

from typing import Any

import pytest

from tfps.compression import (
    Both,
    ByPath,
    Cast,
    Difference,
    Identity,
    Quantize,
    TopK,
)
from tfps.config.schema import CODECS, CompressionSection
from tfps.consistency.modes import Asynchronous
from tfps.errors import ConfigError
from tfps.job.check import check_settings
from tfps.job.compression import CODEC_MAKERS, compression_of, compression_problems


def test_every_name_has_a_codec() -> None:
    assert tuple(CODEC_MAKERS) == CODECS


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, Both()),
        ({"codec": "cast", "dtype": "float16"}, Both(up=Cast("float16"))),
        ({"codec": "quantize", "bits": 2}, Both(up=Quantize(2))),
        ({"codec": "top_k", "fraction": 0.1}, Both(up=TopK(0.1))),
        ({"codec": "top_k", "down": "cast"}, Both(up=TopK(0.01), down=Cast())),
        ({"down": "top_k", "differences": True}, Both(down=Difference(TopK(0.01)))),
        ({"differences": True}, Both()),
        (
            {"codec": "top_k", "rules": {"bias": "identity"}, "minimum_bytes": 64},
            Both(
                up=ByPath({"bias": Identity()}, otherwise=TopK(0.01), minimum_bytes=64),
                down=ByPath({}, minimum_bytes=64),
            ),
        ),
    ],
)
def test_a_section_is_a_choice_of_codecs(options: dict[str, Any], expected: Both) -> None:
    section = CompressionSection(**options)
    assert compression_of(section) == expected
    assert compression_problems(section, mode=Asynchronous()) == []


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["compression.codec=zip"], "compression.codec"),
        (["compression.bits=3"], "compression.bits"),
        (["compression.down=zip"], "compression.down"),
        (["compression.down=top_k"], "expected codecs without a residual"),
        (["compression.fraction=0"], "compression.fraction"),
        (["compression.fraction=1.5"], "compression.fraction"),
        (['compression.rules={"(" = "top_k"}'], "compression.rules: '(': received no regular"),
        (
            ["compression.codec=top_k", "consistency.pipeline_steps=1"],
            "expected a codec without a residual",
        ),
    ],
)
def test_check_names_what_is_wrong(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_settings(None, overrides)
    assert message in str(caught.value)
