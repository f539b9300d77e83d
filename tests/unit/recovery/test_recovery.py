"""`tfps.FaultTolerance`, what it refuses, and what it finds out about servers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfps
from tests.messages import raises
from tfps.errors import ConfigError
from tfps.recovery.probing.task_identity import parse_first_device
from tfps.recovery.servers.server_loss import ServerLoss, updates_lost


def test_every_mistake_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        tfps.FaultTolerance(checkpoints=7, every_steps=0, on_lost_server="go")  # type: ignore[arg-type]
    text = str(caught.value)
    for part in ("checkpoints: received 7", "every_steps: received 0", "on_lost_server: received"):
        assert part in text


def test_steps_need_a_folder() -> None:
    with raises(ConfigError, "every_steps", received=7, remedy="set checkpoints"):
        tfps.FaultTolerance(every_steps=7)


@pytest.mark.parametrize("steps", [True, 1.5, -1])
def test_steps_are_whole_numbers(steps: object) -> None:
    with raises(ConfigError, "every_steps", received=repr(steps), remedy="whole number"):
        tfps.FaultTolerance(checkpoints="folder", every_steps=steps)  # type: ignore[arg-type]


def test_an_incarnation_is_found_among_other_fields() -> None:
    """A server's reply is a device with a name, a kind, memory, a locality and an incarnation."""
    name = b"/job:ps/replica:0/task:0/device:CPU:0"
    device = bytes([10, len(name)]) + name + bytes([18, 3]) + b"CPU" + bytes([32, 128, 2, 42, 0])
    device += bytes([49]) + (2**63 + 5).to_bytes(8, "little")
    assert parse_first_device(bytes([10, len(device)]) + device) == (name.decode(), 2**63 + 5)


def test_nothing_is_lost_where_a_checkpoint_is_as_new() -> None:
    loss = ServerLoss(1, checkpoint=2, restored_updates=40, updates=40, seconds=1.0)
    assert loss.updates_lost == 0
    assert "0 updates lost" in str(loss)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 30))))
def test_an_update_that_was_lost_twice_counts_once(found: list[tuple[int, int, int]]) -> None:
    losses = [
        ServerLoss(server, checkpoint=1, restored_updates=begin, updates=begin + more, seconds=1.0)
        for server, begin, more in found
    ]
    expected = {(s, update) for s, begin, more in found for update in range(begin, begin + more)}
    assert updates_lost(losses) == len(expected)
