"""Placement policies: balance, and TensorFlow's round-robin where sizes are equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tfps.errors import ConfigError
from tfps.placement.policy import ALIASES, LeastLoaded, Placement, RoundRobin, resolve


def _place(policy: Placement, sizes: Sequence[int], servers: int) -> tuple[list[int], list[int]]:
    """The server of each variable, and the bytes of each server at the end."""
    loads, places = [0] * servers, []
    for placed, size in enumerate(sizes):
        places.append(policy.choose(bytes_per_server=tuple(loads), variables_placed=placed))
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
        def choose(self, *, bytes_per_server: Sequence[int], variables_placed: int) -> int:
            return len(bytes_per_server) - 1

    policy = LastServer()
    assert resolve(policy) is policy


@pytest.mark.parametrize("wrong", ["least-loaded", "", 3, LeastLoaded, lambda: 0])
def test_anything_else_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(wrong)
    message = str(caught.value)
    assert message.startswith(f"placement: received {wrong!r}, expected ")
    assert all(repr(alias) in message for alias in ALIASES)
