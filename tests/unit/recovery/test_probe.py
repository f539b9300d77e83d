"""The prober against servers of grpcio that reply, are silent, or are absent."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from tests.harness.leaks import assert_no_leaks
from tfps.cluster import lease_ports
from tfps.recovery.probing.liveness import ProbePolicy
from tfps.recovery.probing.probe import METHOD, Observation, Prober, Task, all_tasks_reply

POLICY = ProbePolicy(period_s=0.05, deadline_s=0.5)
DEADLINE_S = 30.0


class Servant(grpc.GenericRpcHandler):
    """A servant that replies to `GetStatus` unless it is told to be silent."""

    def __init__(self) -> None:
        self.speaks = threading.Event()
        self.speaks.set()

    def service(self, details: Any) -> Any:
        if details.method != METHOD:
            return None
        return grpc.unary_unary_rpc_method_handler(self._reply)

    def _reply(self, request: bytes, context: Any) -> bytes:
        self.speaks.wait(DEADLINE_S)
        return b"status"


class Rounds:
    """The reports of a prober."""

    def __init__(self) -> None:
        self.reports: queue.Queue[Mapping[Task, Observation]] = queue.Queue()

    def wait_for(self, task: Task, *, replied: bool) -> Observation:
        while True:
            seen = self.reports.get(timeout=DEADLINE_S)[task]
            if seen.replied == replied:
                return seen


@pytest.fixture
def servant() -> Iterator[tuple[Servant, str]]:
    servant = Servant()
    server = grpc.server(ThreadPoolExecutor(8), handlers=[servant])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield servant, f"127.0.0.1:{port}"
    servant.speaks.set()
    server.stop(None).wait()


def test_answers_silence_and_answers_again(servant: tuple[Servant, str]) -> None:
    task, address = servant
    with assert_no_leaks(), lease_ports(1) as lease:
        rounds = Rounds()
        nobody = f"127.0.0.1:{lease.ports[0]}"
        prober = Prober(
            {("ps", 0): address, ("worker", 3): nobody}, policy=POLICY, report=rounds.reports.put
        )
        prober.start()
        rounds.wait_for(("ps", 0), replied=True)
        rounds.wait_for(("worker", 3), replied=False)
        task.speaks.clear()
        rounds.wait_for(("ps", 0), replied=False)
        task.speaks.set()
        rounds.wait_for(("ps", 0), replied=True)
        prober.close()


def test_a_task_is_asked_where_it_is_now(servant: tuple[Servant, str]) -> None:
    _, address = servant
    with assert_no_leaks(), lease_ports(1) as lease:
        rounds, addresses = Rounds(), {("ps", 0): f"127.0.0.1:{lease.ports[0]}"}
        prober = Prober(addresses, policy=POLICY, report=rounds.reports.put)
        prober.start()
        rounds.wait_for(("ps", 0), replied=False)
        addresses["ps", 0] = address
        rounds.wait_for(("ps", 0), replied=True)
        prober.close()


def test_closing_does_not_wait_for_a_silent_task(servant: tuple[Servant, str]) -> None:
    task, address = servant
    task.speaks.clear()
    with assert_no_leaks():
        rounds = Rounds()
        policy = ProbePolicy(period_s=0.05, deadline_s=1000.0)
        prober = Prober({("ps", 0): address}, policy=policy, report=rounds.reports.put)
        prober.start()
        prober.close()
        assert rounds.reports.empty()


def test_a_probe_can_be_closed_from_its_own_thread(servant: tuple[Servant, str]) -> None:
    """A strategy is collected on whatever thread the collector runs on."""
    _, address = servant
    with assert_no_leaks():
        rounds = Rounds()

        def report(observations: Mapping[Task, Observation]) -> None:
            prober.close()
            rounds.reports.put(observations)

        prober = Prober({("ps", 0): address}, policy=POLICY, report=report)
        prober.start()
        rounds.wait_for(("ps", 0), replied=True)


def test_whether_all_answer_is_asked_once(servant: tuple[Servant, str]) -> None:
    played, address = servant
    with lease_ports(1) as lease:
        gone = f"127.0.0.1:{lease.ports[0]}"
    with assert_no_leaks():
        assert all_tasks_reply({("ps", 0): address}, deadline_s=DEADLINE_S)
        assert not all_tasks_reply({("ps", 0): address, ("ps", 1): gone}, deadline_s=DEADLINE_S)
        played.speaks.clear()
        assert not all_tasks_reply({("ps", 0): address}, deadline_s=0.2)
