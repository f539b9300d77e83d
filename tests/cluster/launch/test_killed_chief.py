"""SIGKILL of a chief in the middle of `fit`: the next chief of the job continues from there."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.launch.counting_chief import STEPS
from tests.harness.command import Command
from tfps.launch import LocalCluster
from tfps.launch.environment import task_environment
from tfps.transport.setting import TRANSPORT_VARIABLE

ROOT = Path(__file__).resolve().parents[3]
AGAIN = 2  # epochs of the chief that ends


class Chiefs:
    """A cluster's tasks, on which one chief starts after the other.

    Args:
        local: has the tasks.
        arguments: of all chiefs: the mode, and what trains.
        transport: of all.
    """

    def __init__(self, local: LocalCluster, *arguments: str, transport: str) -> None:
        self._arguments = arguments
        self._environment = {
            **os.environ,
            **task_environment(local.spec, "chief", 0),
            TRANSPORT_VARIABLE: transport,
        }

    def _start(self, rounds: int) -> Command:
        chief = [sys.executable, "-m", "tests.cluster.launch.counting_chief"]
        command = [*chief, *self._arguments, str(rounds)]
        return Command(command, deadline_s=120, environment=self._environment, folder=ROOT)

    def killed(self, *, updates: int = 5, later_s: float = 0.0) -> str:
        """Run a chief that is killed after some updates; return its output."""
        with self._start(100_000) as chief:
            while chief.output.count("update ") < updates:
                assert chief.process.poll() is None, chief.describe()
                time.sleep(0.05)
            time.sleep(later_s)
            os.kill(chief.process.pid, signal.SIGKILL)
            assert chief.wait() == -signal.SIGKILL
            return chief.output

    def ended(self) -> str:
        """Run a chief that ends by itself; return its output."""
        with self._start(AGAIN) as chief:
            assert chief.wait() == 0, chief.describe()
            return chief.output


def _numbers(word: str, output: str) -> list[int]:
    """Return the numbers after a word, by server."""
    found = re.search(rf"^{word} ([\d ]+)$", output, re.M)
    assert found is not None, output
    return [int(number) for number in found[1].split()]


def _seen(output: str) -> int:
    return max(int(number) for number in re.findall(r"^update (\d+)$", output, re.M))


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_the_next_chief_goes_on(cluster: Callable[..., LocalCluster]) -> None:
    """Weights, slots, iterations and counts agree, and are at least those the dead chief saw."""
    chiefs = Chiefs(cluster(workers=2, ps=1), "asynchronous", "fit", transport="auto")
    first = chiefs.killed()
    assert _numbers("found", first) == [0]
    second = chiefs.ended()
    (found,) = _numbers("found", second)
    assert found >= _seen(first)
    assert _numbers("ended", second) == [found + AGAIN * STEPS]


VARIANTS = [
    ("asynchronous", "fit", "grpc", 1),
    ("asynchronous", "functions", "auto", 1),
    ("bounded", "fit", "auto", 1),
    ("bounded", "functions", "grpc", 1),
    ("synchronous", "fit", "auto", 2),
    ("synchronous", "fit", "grpc", 2),
]


@pytest.mark.repeats
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("mode", "what", "transport", "contributions"), VARIANTS)
def test_on_several_servers(mode: str, what: str, transport: str, contributions: int) -> None:
    """Each server is atomic by itself; one may lack its part of the last push."""
    with LocalCluster(workers=2, ps=2) as local:
        chiefs = Chiefs(local, mode, what, transport=transport)
        first = chiefs.killed(updates=5, later_s=0.2)
        second = chiefs.ended()
    found = _numbers("found", second)
    assert min(found) >= _seen(first)
    more = AGAIN * STEPS // contributions
    assert _numbers("ended", second) == [count + more for count in found]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("mode", "what"), [("asynchronous", "fit"), ("bounded", "functions")])
def test_at_random_moments(mode: str, what: str) -> None:
    """Ten chiefs of one job: each finds the state of the one before, and adds to it."""
    moments = random.Random(0)
    with LocalCluster(workers=2, ps=2) as local:
        chiefs = Chiefs(local, mode, what, transport="auto")
        seen = 0
        for _ in range(10):
            updates, later_s = moments.randint(1, 30), moments.uniform(0.0, 0.3)
            output = chiefs.killed(updates=updates, later_s=later_s)
            assert min(_numbers("found", output)) >= seen
            seen = _seen(output)
        last = chiefs.ended()
    found = _numbers("found", last)
    assert min(found) >= seen
    assert _numbers("ended", last) == [count + AGAIN * STEPS for count in found]
