"""Workers find a server that is back before they bring functions there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions import function_table
from tfps.bridge.functions.function_table import FunctionTables

DEVICES = [f"/job:worker/replica:0/task:{worker}/device:CPU:0" for worker in range(3)]
SERVER = "/job:ps/replica:0/task:1/device:CPU:0"


class Network:
    """Workers' connections, some of which rest for some attempts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, rests: dict[str, int]) -> None:
        self.rests, self.asked = rests, list[str]()
        monkeypatch.setattr(function_table, "fill", self.fill)
        incarnations = 1, dict.fromkeys(DEVICES, 1)
        monkeypatch.setattr(private, "read_incarnations", lambda: incarnations)

    def fill(self, devices: Sequence[str], server: str, *, entries: int) -> bool:
        assert (server, entries) == (SERVER, 1)
        (device,) = devices
        self.asked.append(device)
        self.rests[device] = self.rests.get(device, 0) - 1
        return self.rests[device] < 0


def _find_again(*, patience_s: float) -> None:
    workers = dict(enumerate(DEVICES))
    tables = FunctionTables(workers=workers, server="/job:ps/task:0", server_count=2, task_count=5)
    tables.reconnect_servers([SERVER], without={1}, patience_s=patience_s)


def test_each_worker_that_is_there_asks_until_it_has_found_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = Network(monkeypatch, rests={DEVICES[0]: 2})
    _find_again(patience_s=60.0)
    assert network.asked == [DEVICES[0]] * 3 + [DEVICES[2]]


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch, rests=dict.fromkeys(DEVICES, 1 << 30))
    _find_again(patience_s=0.05)
    assert set(network.asked) == {DEVICES[0]}
