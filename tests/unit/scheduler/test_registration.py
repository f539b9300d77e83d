"""Registrations are read as they were written, and other texts are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tfps.scheduler.registration import Registration

GOOD = {"role": "worker", "index": 1, "address": "a:1", "is_return": False, "versions": {"p": None}}


def test_what_is_read_is_what_was_written() -> None:
    assert Registration(role="ps", index=None, address="LOCALHOST:2").is_local
    task = Registration(role=None, index=None, address="[::1]:2", versions={"tfps": "0.2.0"})
    read = Registration.from_json(task.to_json(), host="h", number=3)
    assert (read.host, read.number, read.is_local) == ("h", 3, True)
    assert Registration.from_json(read.to_json()) == task


@pytest.mark.parametrize(
    "change",
    [
        {"role": "master"},
        {"index": -1},
        {"index": True},
        {"role": None},  # an index of which role?
        {"address": ""},
        {"address": "a"},
        {"address": "0.0.0.0:5"},
        {"address": "a,b:5"},
        {"is_return": 1},
        {"versions": {"tfps": 1}},
        {"versions": None},
    ],
    ids=str,
)
def test_other_values_are_refused(change: dict[str, Any]) -> None:
    key = "index" if "role" in change and change["role"] is None else next(iter(change))
    with pytest.raises(ValueError, match=rf"{key}(\.tfps)?: received"):
        Registration.from_json(json.dumps({**GOOD, **change}))


@pytest.mark.parametrize("text", ["", "[]", "{}", "{", "7"])
def test_what_is_no_registration(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Registration.from_json(text)
