"""The keys of a recommender's job file, and what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.messages import raises
from tfps.config import load, parse, to_toml
from tfps.config.bundle import config_path
from tfps.errors import ConfigError

ROWS = [10] * 26


def _parsed(**sections: Any) -> Any:
    return parse({"example": "recommender", **sections})


def test_the_shipped_job_shows_the_defaults_and_has_20_million_rows(tmp_path: Any) -> None:
    shipped: Any = load(config_path("recommender"))
    assert sum(shipped.data.rows()) == 20_000_000
    assert len(shipped.data.rows()) == 26
    own = _parsed()
    for section in ("model", "training"):
        assert getattr(shipped, section) == getattr(own, section)
    assert shipped.data == own.data
    written = tmp_path / "config.toml"
    written.write_text(to_toml(shipped))
    assert load(written) == shipped


def test_tables_can_be_made_small_at_once() -> None:
    rows = _parsed(data={"max_table_rows": 100}).data.rows()
    assert max(rows) == 100
    assert min(rows) == 3


@pytest.mark.parametrize(
    ("sections", "key", "received", "remedy"),
    [
        ({"model": {"name": "cnn"}}, "model.name", "'cnn'", "'dlrm'"),
        ({"model": {"cnn": {}}}, "model.cnn", "unknown key", "name, dlrm"),
        ({"data": {"table_rows": [10] * 25}}, "data.table_rows", f"[{'10, ' * 19}...", "26 items"),
        ({"data": {"click_log": {"exponent": 1.0}}}, "data.click_log.exponent", 1.0, "above 1"),
        (
            {"data": {"source": "click_log", "path": "x"}},
            "data.path",
            "'x' with data.source = 'click_log'",
            "remove one",
        ),
        (
            {"data": {"source": "criteo"}},
            "data.source",
            "'criteo' without data.path",
            "set data.path",
        ),
    ],
)
def test_a_mistake_names_key_received_and_allowed(
    sections: Any, key: str, received: object, remedy: str
) -> None:
    with raises(ConfigError, key, received=received, remedy=remedy) as raised:
        _parsed(**sections)
    assert len(raised.value.problems) == 1


def test_the_shipped_job_takes_files_by_one_key() -> None:
    config: Any = load(config_path("recommender"), ["data.path=day_*.gz"])
    assert (config.data.path, config.data.source) == ("day_*.gz", "auto")
