"""The codec of a variable in each direction."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.messages import raises
from tfps.compression import ByPath, Cast, Identity, PushPull, Quantize, TopK
from tfps.compression.directions import all_codecs, any_keeps_residuals, choice_for, resolve
from tfps.errors import ConfigError

RULES = ByPath({"embedding/": Cast(), "kernel": TopK(0.1)}, otherwise=Quantize(8), minimum_bytes=64)


@pytest.mark.parametrize(
    ("compression", "expected"),
    [
        (None, PushPull(Identity(), Identity())),
        (TopK(0.1), PushPull(push=TopK(0.1))),
        (RULES, PushPull(push=RULES)),
        (PushPull(pull=Cast()), PushPull(Identity(), Cast())),
    ],
)
def test_one_codec_alone_is_for_pushes(compression: Any, expected: PushPull) -> None:
    assert resolve(compression) == expected


@pytest.mark.parametrize(
    ("path", "size_bytes", "expected"),
    [
        ("model/embedding/kernel", 4000, Cast()),
        ("model/dense/kernel", 4000, TopK(0.1)),
        ("model/dense/bias", 4000, Quantize(8)),
        ("model/dense/kernel", 63, Identity()),
        ("model/dense/kernel", 64, TopK(0.1)),
    ],
)
def test_the_first_pattern_decides(path: str, size_bytes: int, expected: Any) -> None:
    assert choice_for(RULES, path, size_bytes=size_bytes).codec == expected


def test_what_any_variable_may_have() -> None:
    assert all_codecs(RULES) == (Cast(), TopK(0.1), Quantize(8))
    assert any_keeps_residuals(RULES)
    assert not any_keeps_residuals(ByPath({"kernel": Quantize(2)}))


@pytest.mark.parametrize(
    ("make", "key", "received", "expected"),
    [
        (lambda: resolve("topk"), "compression", "'topk'", "TopK(0.01)"),
        (lambda: resolve(TopK), "compression", "<class", "TopK(0.01)"),
        (lambda: PushPull(push=cast("Any", 1)), "push", "1", "TopK(0.01)"),
        (lambda: PushPull(pull=cast("Any", PushPull())), "pull", "PushPull", "TopK(0.01)"),
        (lambda: ByPath({"(": TopK(0.1)}), "'('", "regular expression", ""),
        (lambda: ByPath({"kernel": cast("Any", "topk")}), "'kernel'", "'topk'", "TopK(0.01)"),
        (lambda: ByPath({}, otherwise=cast("Any", None)), "otherwise", "None", "TopK(0.01)"),
        (lambda: ByPath({}, minimum_bytes=-1), "minimum_bytes", "-1", "0 or more"),
    ],
)
def test_refusals_name_what_is_wrong(make: Any, key: str, received: str, expected: str) -> None:
    with raises(ConfigError, f"{key}: received", received=received, remedy=expected):
        make()
