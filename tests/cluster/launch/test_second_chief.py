"""Another script with the same tasks is refused while the first one lives, and takes its place."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import keras
import numpy as np
import pytest

import tfps
from tests.harness.command import run_command
from tfps.cluster import SUPERVISED, PortLease, lease_ports
from tfps.launch import LocalCluster
from tfps.launch.environment import task_environment

pytestmark = pytest.mark.timeout(300)

# It trains until a file exists, then says how many updates were made and applied.
FIRST = """
import pathlib, sys
import keras, numpy as np
import tfps
strategy = tfps.ParameterServerStrategy(job=sys.argv[2] or None, transport=sys.argv[3])
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
fits = 0
while not pathlib.Path(sys.argv[1]).exists():
    model.fit(np.ones([20, 4]), np.ones([20]), batch_size=1, verbose=0)
    fits += 1
    print("fits", fits, flush=True)
print("made", 20 * fits, "applied", strategy.stats().updates_applied, flush=True)
strategy.close()
"""
SECOND = """
import sys
import tfps
try:
    tfps.ParameterServerStrategy(job=sys.argv[2] or None, transport=sys.argv[3])
except tfps.errors.TasksInUse as error:
    print("refused:", error, flush=True)
    sys.exit(3)
print("taken", flush=True)
"""


class Chief:
    """A script as a chief of a cluster, whose lines are read as they come."""

    def __init__(self, local: LocalCluster, script: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            env=chief_environment(local),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self._out: IO[str] = self.process.stdout
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._has_ended = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._out:
            with self._changed:
                self.lines.append(line.strip())
                self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def wait_for(self, words: str, *, count: int = 1, deadline_s: float = 120) -> str:
        """The line that contains some words for the so manyth time."""

        def found() -> list[str]:
            return [line for line in self.lines if words in line]

        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or len(found()) >= count, deadline_s)
            assert len(found()) >= count, self.lines
            return found()[count - 1]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@functools.cache
def chief_port(_address: str) -> PortLease:
    """A port for the chiefs of a cluster: this process may still listen on the cluster's own."""
    return lease_ports(1)


def chief_environment(local: LocalCluster) -> dict[str, str]:
    [port] = chief_port(local.spec.address("ps", 0)).ports
    spec = replace(local.spec, jobs={**local.spec.jobs, "chief": (f"127.0.0.1:{port}",)})
    environment = {**os.environ, **task_environment(spec, "chief", 0)}
    return {**environment, "TFPS_PROBE_DEADLINE_S": "1"}


@pytest.fixture
def start(cluster: Callable[..., LocalCluster]) -> Iterator[Callable[..., Chief]]:
    chiefs = list[Chief]()

    def begin(script: str, *arguments: str) -> Chief:
        chiefs.append(Chief(cluster(workers=2, ps=1), script, *arguments))
        return chiefs[-1]

    yield begin
    for chief in chiefs:
        chief.end()


def second(local: LocalCluster, tmp_path: Path, job: str, transport: str, **changes: Any) -> Any:
    command = [sys.executable, "-c", SECOND, str(tmp_path / "go"), job, transport]
    environment = {**chief_environment(local), **changes}
    return run_command(command, deadline_s=120, environment=environment)


@pytest.mark.rare
@pytest.mark.quick("auto-")
@pytest.mark.parametrize(
    "options", [("auto", ""), ("auto", "night"), ("grpc", ""), ("grpc", "night")], ids="-".join
)
def test_second_chiefs_are_refused_and_the_first_goes_on(
    cluster: Callable[..., LocalCluster],
    tmp_path: Path,
    options: tuple[str, str],
    request: pytest.FixtureRequest,
) -> None:
    transport, job = options
    local = cluster(workers=2, ps=1)
    strategy = tfps.ParameterServerStrategy(
        local.cluster_resolver, job=job or None, transport=transport
    )
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")

    def fit() -> None:
        model.fit(np.ones([20, 4]), np.ones([20]), batch_size=1, verbose=0)

    fit()
    served = f"job {job}" if job else "a job"
    tries = 1 if request.config.getoption("quickly") else 5
    fits = 1
    with ThreadPoolExecutor(1) as pool:
        for number in range(tries):
            # The last one is its own starter, whose end tells the tasks how the job ended.
            alone = {SUPERVISED: ""} if number == tries - 1 else {}
            trying = pool.submit(second, local, tmp_path, job, transport, **alone)
            while not trying.done():
                fit()
                fits += 1
                wait([trying], timeout=0.5)  # its start needs the processor as well
            result = trying.result()
            assert result.returncode == 3, result.stdout + result.stderr
            said = f"these tasks serve {served} of the chief at {local.spec.address('chief', 0)}"
            assert said in result.stdout
    fit()
    assert strategy.stats().updates_applied == 20 * (fits + 1)
    strategy.close()
    # A next script on the same tasks; those after it are below.
    tfps.ParameterServerStrategy(local.cluster_resolver, transport=transport).close()


@pytest.mark.repeats
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_chief_that_is_gone_or_hangs_is_replaced(
    cluster: Callable[..., LocalCluster], start: Callable[..., Chief], tmp_path: Path, number: int
) -> None:
    local = cluster(workers=2, ps=1)
    first = start(FIRST, str(tmp_path / "go"), "", "auto")
    first.wait_for("fits 1")
    first.process.send_signal(number)
    if number == signal.SIGKILL:
        first.process.wait()
    result = second(local, tmp_path, "", "auto")
    assert "taken" in result.stdout, result.stdout + result.stderr


@pytest.mark.repeats
def test_of_two_that_start_together_one_is_refused(
    cluster: Callable[..., LocalCluster], start: Callable[..., Chief], tmp_path: Path
) -> None:
    both = [start(FIRST, str(tmp_path / "go"), "", "auto") for _ in range(2)]
    until = time.monotonic() + 120
    while all(chief.process.poll() is None for chief in both):
        assert time.monotonic() < until
        time.sleep(0.1)
    (refused,) = [chief for chief in both if chief.process.poll() is not None]
    (going,) = [chief for chief in both if chief is not refused]
    assert refused.lines == []
    going.wait_for("fits 2")
    (tmp_path / "go").touch()
    made, applied = re.findall(r"\d+", going.wait_for("made"))
    assert made == applied
    assert going.process.wait(60) == 0
