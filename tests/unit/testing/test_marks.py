"""The arguments of the pytest plugin's markers, and the mistakes in them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.messages import raises
from tfps.errors import ConfigError
from tfps.testing.marks import options_of


def test_what_is_left_out_has_a_default() -> None:
    assert options_of("tfps_cluster", ps=3) == {"workers": 2, "ps": 3, "environment": None}
    assert options_of("tfps_one_process") == {"workers": 2, "ps": 1}


@pytest.mark.parametrize("environment", [None, {}, {"TFPS_TRANSPORT": "grpc"}])
def test_an_environment(environment: Any) -> None:
    assert options_of("tfps_cluster", environment=environment)["environment"] == environment


@pytest.mark.parametrize(
    ("options", "received", "remedy"),
    [
        ({"workers": 0}, "received 0", "a whole number"),
        ({"ps": "two"}, "received 'two'", "a whole number"),
        ({"worker": 2}, "unknown argument", "did you mean workers?"),
        ({"environment": "grpc"}, "received 'grpc'", '{"TFPS_TRANSPORT": "grpc"}'),
        ({"environment": {"N": 1}}, "received {'N': 1}", '{"TFPS_TRANSPORT": "grpc"}'),
    ],
)
def test_a_mistake_is_named_with_what_to_write(
    options: dict[str, Any], received: str, remedy: str
) -> None:
    ((name, value),) = options.items()
    key = f"@pytest.mark.tfps_cluster({name}={value!r}): {name}: "
    with raises(ConfigError, key, received=received, remedy=remedy):
        options_of("tfps_cluster", **options)


def test_an_argument_without_a_name() -> None:
    with raises(ConfigError, "tfps_one_process(2)", received=2, remedy="workers and ps"):
        options_of("tfps_one_process", 2)


def test_only_processes_have_an_environment() -> None:
    key = "environment: unknown argument"
    with raises(ConfigError, key, received={}, remedy="workers and ps"):
        options_of("tfps_one_process", environment={})


def test_all_mistakes_are_named() -> None:
    with raises(ConfigError, "has 4 mistakes") as caught:
        options_of("tfps_cluster", 2, workers=0, ps=-1, servers=1)
    assert len(caught.value.problems) == 4
