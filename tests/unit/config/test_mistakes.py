"""Any mistake, anywhere in a job file, is named by its key: property tests."""

from __future__ import annotations

import copy
import datetime
import string
import tomllib
from typing import Any

import pytest
import tomli_w
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.scaled_examples import scaled_examples
from tfps.config import parse, to_toml
from tfps.config.overrides import apply_overrides
from tfps.errors import ConfigError

# A busy machine is no mistake.
relaxed = settings(deadline=None, max_examples=scaled_examples(60))

GOOD = tomllib.loads(to_toml(parse({})))


def leaves(table: dict[str, Any], prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in table.items():
        inner = leaves(value, (*prefix, key)) if isinstance(value, dict) else [(*prefix, key)]
        found += inner
    return found


LEAVES = leaves(GOOD)
# A date is nowhere allowed, whatever the key.
BAD_VALUE = st.dates()
SECTIONS = [(), ("model",), ("model", "cnn"), ("data",), ("cluster",), ("training",)]
NEW_KEY = st.text(string.ascii_lowercase, min_size=1, max_size=12).map(lambda text: f"{text}_zz")
TOML_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats()
    | st.text(max_size=8)
    | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=5,
)


def put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *parents, last = path
    for part in parents:
        values = values[part]
    values[last] = value


@relaxed
@given(
    wrong=st.dictionaries(st.sampled_from(LEAVES), BAD_VALUE, min_size=1),
    unknown=st.sets(st.tuples(st.sampled_from(SECTIONS), NEW_KEY), max_size=3),
)
def test_every_wrong_value_and_unknown_key_is_named_once(wrong, unknown):
    values = copy.deepcopy(GOOD)
    for path, value in wrong.items():
        put(values, path, value)
    for section, key in unknown:
        put(values, (*section, key), 1)
    expected = {".".join(path) for path in wrong}
    expected |= {".".join((*section, key)) for section, key in unknown}
    with pytest.raises(ConfigError) as raised:
        parse(values)
    named = [problem.split(":")[0] for problem in raised.value.problems]
    assert sorted(named) == sorted(expected)


@relaxed
@given(path=st.sampled_from([*LEAVES, ("model",), ("training", "optimizer")]), value=TOML_VALUES)
@example(path=("training", "optimizer"), value={"x": None})
@example(path=("training", "optimizer"), value={"x": [{"y": None}]})
@example(path=("training", "optimizer"), value={"x": datetime.date(2000, 1, 1)})
@example(path=("training", "optimizer"), value={"x": [float("nan")]})
def test_any_value_gives_a_config_or_a_config_error(path, value):
    values = copy.deepcopy(GOOD)
    put(values, path, value)
    problems: tuple[str, ...] = ()
    try:
        assert parse(tomllib.loads(to_toml(config := parse(values)))) == config
    except ConfigError as error:
        problems = error.problems
    assert all(problem.startswith(path[0]) for problem in problems)


@relaxed
@given(texts=st.lists(st.text(max_size=30) | st.sampled_from(["training.epochs=3"]), max_size=4))
def test_any_text_after_set_gives_values_or_problems(texts):
    result, problems = apply_overrides(GOOD, texts)
    assert len(problems) <= len(texts)
    tomli_w.dumps(result)
    assert (result == GOOD) or len(problems) < len(texts)
