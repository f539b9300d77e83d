"""Placement policies: balance, and TensorFlow's round-robin where sizes are equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.messages import check_message, raises
from tfps.errors import ConfigError
from tfps.partitioners import VariableSpec
from tfps.placement.policy import (
    ALIASES,
    AllReduce,
    ByPath,
    LeastLoaded,
    Placement,
    RoundRobin,
    is_mirrored,
    mirrors_any,
    resolve,
    server_problems,
)


def _place(policy: Placement, sizes: Sequence[int], servers: int) -> tuple[list[int], list[int]]:
    """The server of each variable, and the bytes of each server at the end."""
    loads, places = [0] * servers, []
    for placed, size in enumerate(sizes):
        variable = VariableSpec(f"variable_{placed}", (size,), "int8")
        places.append(
            policy.choose(variable, bytes_per_server=tuple(loads), variables_placed=placed)
        )
        loads[places[-1]] += size
    return places, loads


@given(count=st.integers(0, 20), size=st.integers(1, 1000), servers=st.integers(1, 5))
def test_equal_sizes_go_round(count: int, size: int, servers: int) -> None:
    expected = [k % servers for k in range(count)]
    assert _place(LeastLoaded(), [size] * count, servers)[0] == expected
    assert _place(RoundRobin(), [size] * count, servers)[0] == expected


@given(sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=30), servers=st.integers(1, 5))
def test_least_loaded_differs_by_one_variable_at_most(sizes: list[int], servers: int) -> None:
    _, loads = _place(LeastLoaded(), sizes, servers)
    assert max(loads) - min(loads) <= max(sizes)


def test_large_variables_do_not_meet_on_one_server() -> None:
    sizes = [4_000, 16, 4_000, 16, 4_000, 16]  # kernels and biases
    assert max(_place(LeastLoaded(), sizes, 2)[1]) < max(_place(RoundRobin(), sizes, 2)[1])


@pytest.mark.parametrize(("alias", "policy"), ALIASES.items())
def test_alias(alias: str, policy: type[Placement]) -> None:
    assert resolve(alias) == policy()


def test_nothing_is_least_loaded() -> None:
    assert resolve(None) == LeastLoaded()


def test_any_object_that_chooses_is_a_policy() -> None:
    class LastServer:
        def choose(
            self, variable: VariableSpec, *, bytes_per_server: Sequence[int], variables_placed: int
        ) -> int:
            return len(bytes_per_server) - 1

    policy = LastServer()
    assert resolve(policy) is policy


@pytest.mark.parametrize("wrong", ["least-loaded", "", 3, LeastLoaded, lambda: 0])
def test_anything_else_is_refused(wrong: Any) -> None:
    aliases = ", ".join(map(repr, ALIASES))
    with raises(ConfigError, "placement: ", received=repr(wrong), remedy=aliases):
        resolve(wrong)


def _by(placement: Placement, path: str, loads: Sequence[int] = (9, 0, 5)) -> int:
    variable = VariableSpec(path, (1,))
    return placement.choose(variable, bytes_per_server=loads, variables_placed=3)


def test_the_first_rule_that_is_found_in_the_path_decides() -> None:
    placement = ByPath({"embedding/": 2, "^tower_b/": RoundRobin(), "kernel$": 0})
    assert _by(placement, "model/embedding/embeddings") == 2
    assert _by(placement, "tower_b/dense/kernel") == 0  # the third of three, by count
    assert _by(placement, "tower_a/dense/kernel") == 0
    assert _by(placement, "tower_a/dense/bias") == 1  # the one that holds least
    assert _by(ByPath({}, otherwise=ByPath({"": 2})), "anything") == 2
    assert _by(ByPath({"a": "round_robin"}, otherwise="least_loaded"), "table") == 0
    assert _by(ByPath({"a": "round_robin"}, otherwise="least_loaded"), "query") == 1
    assert resolve(placement) is placement


@pytest.mark.parametrize(
    ("key", "value", "received", "expected"),
    [
        ("(", 0, "regular expression", ""),
        ("a", -1, "-1", "the index of a server"),
        ("a", "least_filled", "'least_filled'", "the index of a server"),
        ("a", True, "True", "the index of a server"),
        ("a", RoundRobin, "<class", "the index of a server"),
    ],
)
def test_a_rule_that_is_none(key: str, value: Any, received: str, expected: str) -> None:
    with raises(ConfigError, f"{key!r}: ", received=received, remedy=expected) as caught:
        ByPath({key: value})
    assert "\n" not in str(caught.value)  # one problem


@pytest.mark.parametrize("wrong", ["least_filled", 1, RoundRobin, ["round_robin"]])
def test_what_rules_leave_goes_to_a_policy(wrong: Any) -> None:
    with raises(ConfigError, "otherwise: ", received=repr(wrong), remedy="choose()") as caught:
        ByPath({}, otherwise=wrong)
    assert "\n" not in str(caught.value)  # one problem


def test_rules_for_servers_that_are_not_there() -> None:
    placement = ByPath({"a": 1, "b": 2, "c": ByPath({"d": 5})})
    assert server_problems(placement, servers=6) == []
    assert server_problems(LeastLoaded(), servers=1) == []
    first, second = server_problems(placement, servers=2)
    check_message(first, "'b'", received="server 2", remedy="expected 0 to 1")
    check_message(second, "'d'", received="server 5", remedy="expected 0 to 1")


@pytest.mark.parametrize(
    ("placement", "mirrored"),
    [
        (LeastLoaded(), []),
        ("all_reduce", ["dense", "table"]),
        (ByPath({"table": 1}, otherwise=AllReduce()), ["dense"]),
        (ByPath({"dense": "all_reduce"}), ["dense"]),
        (ByPath({"table": ByPath({"^t": "all_reduce"})}), ["table"]),
    ],
)
def test_what_workers_mirror(placement: Placement | str, mirrored: list[str]) -> None:
    assert [path for path in ("dense", "table") if is_mirrored(placement, path)] == mirrored
    assert mirrors_any(placement) == bool(mirrored)


def test_a_mirrored_variable_has_a_home_on_a_server() -> None:
    assert _place(AllReduce(), [4, 1, 1], 2)[0] == [0, 1, 1]
    assert _place(AllReduce("round_robin"), [4, 1, 1], 2)[0] == [0, 1, 0]
    home = ByPath({"a": 3})
    assert len(server_problems(AllReduce(home), servers=2)) == 1


@pytest.mark.parametrize("home", [1, "fewest", AllReduce(), "all_reduce", RoundRobin])
def test_a_home_that_is_none(home: Any) -> None:
    with raises(ConfigError, "home: ", received=repr(home), remedy="'least_loaded'"):
        AllReduce(home)
