"""The arguments of the pytest plugin's markers, and the mistakes in them."""

from __future__ import annotations

from typing import Any

import pytest

from tfps.errors import ConfigError
from tfps.testing.marks import options_of


def test_what_is_left_out_has_a_default() -> None:
    assert options_of("tfps_cluster", ps=3) == {"workers": 2, "ps": 3, "environment": None}
    assert options_of("tfps_one_process") == {"workers": 2, "ps": 1}


@pytest.mark.parametrize("environment", [None, {}, {"TFPS_TRANSPORT": "grpc"}])
def test_an_environment(environment: Any) -> None:
    assert options_of("tfps_cluster", environment=environment)["environment"] == environment


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers: received 0, expected a whole number from 1"),
        ({"ps": "two"}, "ps: received 'two', expected a whole number from 1"),
        ({"worker": 2}, "worker: unknown argument; did you mean workers? expected workers, ps and"),
        ({"environment": "grpc"}, "environment: 'grpc'; expected variables with their values"),
        ({"environment": {"N": 1}}, "environment: {'N': 1}; expected variables with their values"),
    ],
)
def test_a_mistake_is_named_with_what_to_write(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        options_of("tfps_cluster", **options)
    ((name, value),) = options.items()
    assert str(caught.value).startswith(f"@pytest.mark.tfps_cluster({name}={value!r}): {message}")


def test_an_argument_without_a_name() -> None:
    with pytest.raises(
        ConfigError, match=r"2: an argument without a name; expected workers and ps"
    ):
        options_of("tfps_one_process", 2)


def test_only_processes_have_an_environment() -> None:
    with pytest.raises(
        ConfigError, match=r"environment: unknown argument; expected workers and ps"
    ):
        options_of("tfps_one_process", environment={})


def test_all_mistakes_are_named() -> None:
    with pytest.raises(ConfigError, match="has 4 mistakes") as caught:
        options_of("tfps_cluster", 2, workers=0, ps=-1, servers=1)
    assert len(caught.value.problems) == 4
