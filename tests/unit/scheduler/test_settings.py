"""The variables of a task that knows a scheduler are checked together, each with a remedy."""

from __future__ import annotations

import pytest

from tests.messages import check_message, raises
from tfps.errors import ConfigError
from tfps.scheduler.settings import SchedulerSettings


def _read(*roles: str, **variables: str) -> SchedulerSettings | None:
    environment = {f"TFPS_{name.upper()}": value for name, value in variables.items()}
    kinds = roles or ("chief", "worker", "ps", "evaluator")
    return SchedulerSettings.from_environment(environment, roles=kinds, program="tfps run")


def test_what_is_not_said_is_left_to_the_scheduler() -> None:
    assert _read() is None
    assert _read(scheduler="a:1") == SchedulerSettings(scheduler="a:1")
    assert _read("chief", scheduler="a:1") == SchedulerSettings(scheduler="a:1", role="chief")


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("a", "a", None), ("a:5", "a", 5), ("[::1]", "::1", None), ("[::1]:5", "::1", 5)],
)
def test_an_address_with_and_without_a_port(address: str, host: str, port: int | None) -> None:
    settings = _read(scheduler="s:1", role="ps", index="1", address=address)
    assert settings == SchedulerSettings(scheduler="s:1", role="ps", index=1, host=host, port=port)


@pytest.mark.parametrize(
    ("variables", "key", "received", "remedy"),
    [
        ({"role": "ps"}, "TFPS_SCHEDULER", "missing", "--scheduler"),
        ({"scheduler": "a"}, "TFPS_SCHEDULER", "'a'", "host:port"),
        ({"scheduler": "a:1", "role": "master"}, "TFPS_ROLE", "'master'", "chief or worker"),
        ({"scheduler": "a:1", "role": "ps", "index": "x"}, "TFPS_INDEX", "'x'", "number"),
        ({"scheduler": "a:1", "index": "1"}, "TFPS_INDEX", "1", "--role"),
        ({"scheduler": "a:1", "address": "b c"}, "TFPS_ADDRESS", "'b c:1'", "white space"),
        ({"scheduler": "a:1", "address": "b:http"}, "TFPS_ADDRESS", "b:http", "brackets"),
    ],
)
def test_wrong_values(variables: dict[str, str], key: str, received: str, remedy: str) -> None:
    with raises(ConfigError, key, received=received, remedy=remedy):
        _read(**variables)


def test_all_mistakes_are_named_at_once() -> None:
    wrong = {"TFPS_SCHEDULER": "a", "TFPS_ROLE": "chief", "TFPS_INDEX": "-1", "TF_CONFIG": "{}"}
    with pytest.raises(ConfigError) as caught:
        SchedulerSettings.from_environment(wrong, roles=("worker", "ps"), program="tfps serve")
    assert len(caught.value.problems) == 4
    check_message(str(caught.value), "TF_CONFIG", received="beside", remedy="unset")
    check_message(str(caught.value), "TFPS_ROLE", received="'chief'", remedy="tfps serve")
