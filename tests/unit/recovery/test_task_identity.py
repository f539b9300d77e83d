"""The sender of a probe's reply: the task that was asked, another one, or none."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from tfps.cluster import lease_ports
from tfps.recovery.probing.task_identity import TaskIdentity, ask_identities


class Ps1(grpc.GenericRpcHandler):
    """A server that replies to every request with the status of server 1, started as number 7."""

    def service(self, _details: Any) -> Any:
        name = b"/job:ps/replica:0/task:1/device:CPU:0"
        device = bytes([10, len(name)]) + name + bytes([49]) + (7).to_bytes(8, "little")
        status = bytes([10, len(device)]) + device
        return grpc.unary_unary_rpc_method_handler(lambda *_: status)


@pytest.fixture
def address() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2), handlers=[Ps1()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def test_who_answers(address: str) -> None:
    with lease_ports(1) as lease:
        nobody = f"127.0.0.1:{lease.ports[0]}"
        asked = {("ps", 1): address, ("ps", 10): address, ("worker", 1): address, ("ps", 0): nobody}
        found = ask_identities(asked, deadline_s=30.0)
    assert found == {
        ("ps", 1): TaskIdentity(7, is_gone=False),
        ("ps", 10): TaskIdentity(None, is_gone=True, other="ps 1"),
        ("worker", 1): TaskIdentity(None, is_gone=True, other="ps 1"),
        ("ps", 0): TaskIdentity(None, is_gone=True),
    }
