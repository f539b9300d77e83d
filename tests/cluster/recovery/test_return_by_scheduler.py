"""Tasks that know one address are killed and come back at others: the counts are exact."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tfps
from tests.cluster.launch.counting_chief import STEPS
from tests.harness.command import Command
from tfps.cluster import lease_ports

pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 300
AGAIN = 2  # epochs of the chief that ends
TFPS = [sys.executable, "-m", "tfps"]


class Job:
    """The processes of a job, each of which gets the address of the scheduler only."""

    def __init__(self, stack: contextlib.ExitStack, folder: Path, *, servers: int = 1) -> None:
        self._stack, self.folder, self._servers = stack, folder, servers
        with lease_ports(1) as lease:
            self.address = f"127.0.0.1:{lease.ports[0]}"
        self.tasks: dict[str, Command] = {}

    def start(self, *arguments: object, **environment: str) -> Command:
        """Start a process."""
        variables = {"TFPS_SCHEDULER": self.address, "TFPS_CHIEF_TIMEOUT_S": "120", **environment}
        texts = [str(argument) for argument in arguments]
        command = Command(texts, deadline_s=DEADLINE_S, environment=variables, folder=ROOT)
        return self._stack.enter_context(command)

    def start_scheduler(self) -> None:
        """Start the scheduler, at the address that the tasks know."""
        counts = ["--workers", 2, "--ps", self._servers]
        scheduler = self.start(*TFPS, "scheduler", "--listen", self.address, *counts)
        scheduler.wait_for("waits at")
        self.tasks["scheduler"] = scheduler

    def start_tasks(self, *, indexed: bool = False) -> None:
        """Start all workers and servers."""
        names = ["worker 0", "worker 1", *(f"ps {index}" for index in range(self._servers))]
        for name in names:
            role, index = name.split()
            more = {"TFPS_ROLE": role, "TFPS_INDEX": index} if indexed else {}
            self.tasks[name] = self.start(*TFPS, "serve", **more)
        if not indexed:  # by the name that each has got
            tasks = [self.tasks.pop(name) for name in names]
            self.tasks |= {_name(task): task for task in tasks}

    def train(self, mode: str = "asynchronous") -> Command:
        """Start the chief; return once it trains."""
        module = "tests.cluster.recovery.scheduled_chief"
        chief = self.start(sys.executable, "-m", module, mode, self.folder)
        self.tasks["chief 0"] = chief
        return chief

    def kill(self, *names: str) -> list[str]:
        """Kill tasks; return the addresses that they had."""
        before = [self.places()[name]["address"] for name in names if name != "scheduler"]
        for name in names:
            self.tasks[name].send(signal.SIGKILL)
        for name in names:
            assert self.tasks.pop(name).wait() == -signal.SIGKILL
        return before

    def places(self) -> dict[str, Any]:
        """Return what the scheduler says of each place."""
        with urllib.request.urlopen(f"http://{self.address}/cluster", timeout=20) as reply:
            places = json.loads(reply.read())["places"]
        return {f"{place['role']} {place['index']}": place for place in places}

    def end(self) -> None:
        """Let the chief end: its counts are exact, and all tasks end as it does."""
        (self.folder / "end").touch()
        chief = self.tasks["chief 0"]
        assert chief.wait() == 0, chief.describe()
        assert "counts are exact" in chief.output
        for task in self.tasks.values():
            assert task.wait() == 0, task.describe()


def _name(task: Command) -> str:
    return task.wait_for(r"tfps: (\w+ \d+) serves at")[1]


def _wait_for_epochs(chief: Command, count: int = 2) -> None:
    """Wait until more epochs have ended."""
    last = max([int(each) for each in re.findall(r"^epoch (\d+)", chief.output, re.M)], default=-1)
    chief.wait_for(rf"(?m)^epoch {last + count}:")


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    with contextlib.ExitStack() as stack:
        yield lambda **arguments: Job(stack, tmp_path, **arguments)


@pytest.mark.slow
@pytest.mark.parametrize("indexed", [False, True])
def test_a_worker_returns(make_job: Callable[..., Job], *, indexed: bool) -> None:
    job = make_job()
    job.start_scheduler()
    chief = job.train()
    job.start_tasks(indexed=indexed)
    _wait_for_epochs(chief)
    (before,) = job.kill("worker 1")
    index = {"TFPS_ROLE": "worker", "TFPS_INDEX": "1"} if indexed else {}
    job.tasks["worker 1"] = again = job.start(*TFPS, "serve", **index)
    chief.wait_for(f"worker 1 moved to .* from {before}")
    assert _name(again) == "worker 1"
    chief.wait_for("lives 1 2")
    _wait_for_epochs(chief)
    assert job.places()["worker 1"]["address"] != before
    job.end()


@pytest.mark.slow
def test_a_server_returns(make_job: Callable[..., Job]) -> None:
    job = make_job(servers=2)
    job.start_scheduler()
    chief = job.train("synchronous")
    job.start_tasks()
    _wait_for_epochs(chief)
    (before,) = job.kill("ps 0")
    job.tasks["ps 0"] = again = job.start(*TFPS, "serve")
    chief.wait_for(f"ps 0 moved to .* from {before}")
    chief.wait_for("back again: ps 0")
    assert _name(again) == "ps 0"
    _wait_for_epochs(chief)
    job.end()


@pytest.mark.slow
def test_a_scheduler_returns(make_job: Callable[..., Job]) -> None:
    """Together with a worker, while the others train; a newcomer takes no living task's place."""
    job = make_job()
    job.start_scheduler()
    chief = job.train()
    job.start_tasks()
    _wait_for_epochs(chief)
    (before,) = job.kill("worker 0", "scheduler")
    _wait_for_epochs(chief, 5)
    job.start_scheduler()
    again = job.start(*TFPS, "serve")
    scheduler = job.tasks["scheduler"]
    for name in ("worker 1", "ps 0", "chief 0"):
        scheduler.wait_for(f"{name} at .* has come")
    job.tasks["worker 0"] = again
    chief.wait_for(f"worker 0 moved to .* from {before}")
    assert _name(again) == "worker 0"
    chief.wait_for("lives 2 1")
    _wait_for_epochs(chief)
    job.end()


@pytest.mark.slow
def test_a_named_chief_returns(make_job: Callable[..., Job]) -> None:
    """The tasks look for the chief where it is now, and end with it."""
    job = make_job()
    job.start_scheduler()
    chief = [sys.executable, "-m", "tests.cluster.launch.counting_chief", "asynchronous", "fit"]
    job.tasks["chief 0"] = first = job.start(*chief, 100_000)
    job.start_tasks()
    first.wait_for("(?m)^update 100$")
    with tfps.attach("counting", scheduler=job.address) as attachment:
        assert attachment.stats().updates_applied >= 100
    (before,) = job.kill("chief 0")
    seen = max(int(number) for number in re.findall(r"^update (\d+)$", first.output, re.M))
    second = job.start(*chief, AGAIN)
    assert second.wait() == 0, second.describe()
    found, ended = (int(second.wait_for(rf"{word} (\d+)")[1]) for word in ("found", "ended"))
    assert found >= seen
    assert ended == found + AGAIN * STEPS
    for task in job.tasks.values():
        assert task.wait() == 0, task.describe()
    scheduler = job.tasks["scheduler"].output
    chiefs = re.findall(r"chief 0 at (\S+) has come", scheduler)
    assert chiefs[0] == before != chiefs[1]
