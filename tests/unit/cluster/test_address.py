"""Addresses of tasks: what is no address is refused at once, and loopback addresses are noticed."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.messages import check_message
from tfps.cluster import ClusterSpec
from tfps.cluster.address import address_problem, join_address, loopback_problem, split_address
from tfps.errors import ConfigError

# Texts that are nearly addresses.
PARTS = st.sampled_from(["host", "host.", "1.2.3.4", "::1", "[::1]", "[::1", "", " ", ":", "/"])
PORTS = st.sampled_from(["1", "65535", "0", "65536", "70000", "", "http", "-1", "1 ", "²"])


@given(st.one_of(st.text(max_size=12), st.builds("{}:{}".format, PARTS, PORTS), PARTS))
@example("host.")
@example("host:")
@example(":1")
@example("h:70000")
@example("[::1")
def test_a_text_is_an_address_or_a_mistake(text: str) -> None:
    problem = address_problem(text)
    jobs = {"chief": (text,), "worker": ("w:1",), "ps": ("p:1",)}
    if problem is None:
        host, port = split_address(text)
        assert host
        assert 1 <= port <= 65_535
        assert split_address(join_address(host, port)) == (host, port)
        return
    with pytest.raises(ConfigError) as caught:
        ClusterSpec(jobs=jobs)
    check_message(str(caught.value), "cluster.chief[0]", received=repr(text), remedy="write")


@pytest.mark.parametrize("local", ["localhost:1", "127.0.0.2:1", "[::1]:1"])
def test_a_loopback_address_beside_others(local: str) -> None:
    tasks = [("chief", 0, local), ("worker", 0, "node1:1"), ("ps", 0, "10.0.0.1:1")]
    problem = loopback_problem(tasks)
    check_message(problem, "chief 0", received=local, remedy="worker 0 at node1:1")
    assert loopback_problem(tasks[1:]) == loopback_problem([tasks[0]] * 2) == ""
