"""`--set key=value`."""

from __future__ import annotations

import pytest

from tests.messages import check_message, raises
from tfps.config.overrides import apply_overrides, parse_override
from tfps.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=3", 3),
        ("a.b = 3", 3),
        ("a.b=0.5", 0.5),
        ("a.b=1e-3", 1e-3),
        ("a.b=true", True),
        ("a.b=adam", "adam"),
        ("a.b=runs/one two", "runs/one two"),
        ("a.b='3'", "3"),
        ('a.b="x=y"', "x=y"),
        ("a.b=x=y", "x=y"),
        ("a.b=[32, 64]", [32, 64]),
        ("a.b={c = 1}", {"c": 1}),
    ],
)
def test_values_have_the_syntax_of_toml_and_words_are_texts(text, value):
    assert parse_override(text) == (("a", "b"), value)


@pytest.mark.parametrize(
    "text", ["", "a", "=3", "a.=3", ".a=3", "a..b=3", "a=", "a=[1", "a='x", "a={", "a=1\nb=2"]
)
def test_what_is_no_override_is_quoted_in_the_message(text):
    with raises(ConfigError, "--set", received=repr(text), remedy="expected"):
        parse_override(text)


def test_last_one_wins_and_the_original_stays():
    values = {"a": {"b": 1}}
    assert apply_overrides(values, ["a.b=2", "c.d.e=x", "a.b=3"]) == (
        {"a": {"b": 3}, "c": {"d": {"e": "x"}}},
        [],
    )
    assert values == {"a": {"b": 1}}


def test_wrong_ones_are_left_out_and_all_are_reported():
    result, errors = apply_overrides({"a": 1}, ["a.b=2", "x", "c=3"])
    assert result == {"a": 1, "c": 3}
    inner, no_value = map(str, errors)
    check_message(inner, "--set: a.b: ", received="1 as a", remedy="a section")
    check_message(no_value, "--set: ", received="'x'", remedy="key=value")
