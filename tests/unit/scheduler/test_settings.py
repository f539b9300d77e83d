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
        ({"scheduler": "a:1", "address": "b c"}, "TFPS_ADDRESS", "'b c'", "10.0.0.5"),
        ({"scheduler": "a:1", "address": "b:http"}, "TFPS_ADDRESS", "'b:http'", "1 to 65535"),
    ],
)
def test_wrong_values(variables: dict[str, str], key: str, received: str, remedy: str) -> None:
    with raises(ConfigError, key, received=received, remedy=remedy):
        _read(**variables)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "[::]:5",
        "*",
        "%:7",
        "255.255.255.255",
        "224.0.0.1:5",
        "[ff02::1]",
        "a,b",
        ":5000",
        "host:0",
        "host:65536",
        "::1",
        "[gg:1]:8",
        "10.0.1:5",
        "http://a",
    ],
)
def test_addresses_that_reach_no_task(address: str) -> None:
    with raises(ConfigError, "TFPS_ADDRESS", received=f"'{address}'", remedy="10.0.0.5:5000"):
        _read(scheduler="s:1", address=address)


def test_all_mistakes_are_named_at_once() -> None:
    wrong = {"TFPS_SCHEDULER": "a", "TFPS_ROLE": "chief", "TFPS_INDEX": "-1", "TF_CONFIG": "{}"}
    with pytest.raises(ConfigError) as caught:
        SchedulerSettings.from_environment(wrong, roles=("worker", "ps"), program="tfps serve")
    assert len(caught.value.problems) == 4
    check_message(str(caught.value), "TF_CONFIG", received="beside", remedy="unset")
    check_message(str(caught.value), "TFPS_ROLE", received="'chief'", remedy="tfps serve")
