"""`[compression]` of a job file is what the strategy takes."""

from __future__ import annotations

from typing import Any

import pytest

from tfps.compression import ByPath, Cast, Delta, Identity, PushPull, Quantize, TopK
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
        ({}, PushPull()),
        ({"codec": "cast", "dtype": "float16"}, PushPull(push=Cast("float16"))),
        ({"codec": "quantize", "bits": 2}, PushPull(push=Quantize(2))),
        ({"codec": "top_k", "fraction": 0.1}, PushPull(push=TopK(0.1))),
        ({"codec": "top_k", "pull": "cast"}, PushPull(push=TopK(0.01), pull=Cast())),
        ({"pull": "top_k", "deltas": True}, PushPull(pull=Delta(TopK(0.01)))),
        ({"deltas": True}, PushPull()),
        (
            {"codec": "top_k", "rules": {"bias": "identity"}, "minimum_bytes": 64},
            PushPull(
                push=ByPath({"bias": Identity()}, otherwise=TopK(0.01), minimum_bytes=64),
                pull=ByPath({}, minimum_bytes=64),
            ),
        ),
    ],
)
def test_a_section_is_a_choice_of_codecs(options: dict[str, Any], expected: PushPull) -> None:
    section = CompressionSection(**options)
    assert compression_of(section) == expected
    assert compression_problems(section, mode=Asynchronous()) == []


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["compression.codec=zip"], "compression.codec"),
        (["compression.bits=3"], "compression.bits"),
        (["compression.pull=zip"], "compression.pull"),
        (["compression.pull=top_k"], "expected codecs without a residual"),
        (["compression.fraction=0"], "compression.fraction"),
        (["compression.fraction=1.5"], "compression.fraction"),
        (
            ['compression.rules={"(" = "top_k"}'],
            "compression.rules: '(': received an invalid pattern",
        ),
        (
            [
                "compression.codec=top_k",
                "consistency.mode=local_steps",
                "consistency.elasticity=0.5",
            ],
            "leave compression or elasticity out",
        ),
    ],
)
def test_check_names_what_is_wrong(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_settings(None, overrides)
    assert message in str(caught.value)
