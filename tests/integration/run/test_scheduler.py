"""Processes that know one address only: the scheduler's, which tells them where the others are."""

from __future__ import annotations

import contextlib
import json
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.harness.command import Command, run_command
from tests.integration.run.counting_script import counting_script
from tfps.cluster import lease_ports

pytestmark = pytest.mark.timeout(400)

DEADLINE_S = 300
TFPS = [sys.executable, "-m", "tfps"]
# Few steps, of graphs as they were traced: what is to be seen is that the tasks find each other.
FIT = """
import keras, numpy as np, tensorflow as tf, tfps
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
strategy = tfps.ParameterServerStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(np.ones((40, 4), "float32"), np.ones(40, "float32"), batch_size=4, verbose=0)
print("counted", strategy.stats().examples_seen, len(strategy.stats().worker_steps), flush=True)
"""
ROLE = """
import json, os, sys
print("runs as", json.loads(os.environ["TF_CONFIG"])["task"]["type"], flush=True)
"""
Start = Callable[..., Command]


@pytest.fixture
def address() -> str:
    with lease_ports(1) as lease:
        return f"127.0.0.1:{lease.ports[0]}"


@pytest.fixture
def start(address: str) -> Iterator[Start]:
    """Start a command that has the address of the scheduler in its environment."""
    with contextlib.ExitStack() as stack:

        def command(*arguments: object, **environment: str) -> Command:
            variables = {"TFPS_SCHEDULER": address, "TFPS_CHIEF_TIMEOUT_S": "120", **environment}
            texts = [str(argument) for argument in arguments]
            return stack.enter_context(Command(texts, deadline_s=DEADLINE_S, environment=variables))

        yield command


def _start_scheduler(start: Start, address: str) -> Command:
    scheduler = start(*TFPS, "scheduler", "--listen", address, "--workers", 2, "--ps", 1)
    scheduler.wait_for(f"waits at {address} for 1 chief, 2 workers and 1 parameter server")
    return scheduler


def test_tasks_without_roles_train(start: Start, address: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(FIT)
    chief = start(sys.executable, script)  # a plain script is the chief
    others = [
        start(*TFPS, "serve", "--address", f"127.0.0.{number}", GRPC_FAIL_FAST=fails_fast)
        for number, fails_fast in ((1, "true"), (2, "use_caller"), (3, "false"))
    ]
    scheduler = _start_scheduler(start, address)  # the order does not matter
    for other in others:
        other.wait_for("serves at 127.0.0.")
    libraries = {part.path for part in psutil.Process(scheduler.process.pid).memory_maps()}
    assert not [path for path in libraries if "tensorflow" in path]
    with urllib.request.urlopen(f"http://{address}/cluster", timeout=20) as reply:
        places = json.loads(reply.read())["places"]
    assert {place["state"] for place in places} == {"held"}
    assert chief.wait() == 0, chief.describe()
    assert "counted 40 2" in chief.output
    for other in (*others, scheduler):
        assert other.wait() == 0, other.describe()
        assert "ends with status 0: the job finished" in other.output
    roles = sorted(other.output.split()[1] for other in others)
    assert roles == ["ps", "worker", "worker"]


@pytest.mark.slow
def test_tasks_with_roles_end_as_the_script_did(start: Start, address: str, tmp_path: Path) -> None:
    """One command for all, and TensorFlow's own strategy: the environment has the whole cluster."""
    script = tmp_path / "train.py"
    script.write_text(counting_script(steps=10, first=ROLE, last="sys.exit(5)"))
    scheduler = _start_scheduler(start, address)
    run = [*TFPS, "run", "--scheduler", address, "--role"]
    others = [
        start(*run, "worker", "--index", 1, script),
        start(*run, "worker", script, TFPS_ROLE="ps"),  # the option counts
        start(*run, "ps", "--address", "localhost", script, TFPS_SCHEDULER=""),
    ]
    chief = start(*run, "chief", script)
    assert chief.wait() == 5, chief.describe()
    assert "runs as chief" in chief.output
    assert "counted 10.0" in chief.output
    names = ["worker 1", "worker 0", "ps 0"]
    for name, other in zip(names, others, strict=True):
        assert other.wait() == 1, other.describe()
        assert f"tfps: {name} serves at" in other.output
        assert "runs as" not in other.output
    assert "serves at localhost:" in others[2].output
    assert scheduler.wait() == 1, scheduler.describe()


def test_wrong_arguments_are_named_at_once(address: str) -> None:
    variables = {"TF_CONFIG": "{}", "TFPS_INDEX": "first"}
    command = [*TFPS, "serve", "--scheduler", address, "--role", "chief"]
    result = run_command(command, deadline_s=60, environment=variables)
    assert result.returncode == 1
    for key in ("TF_CONFIG: received it beside", "--role: received 'chief'", "TFPS_INDEX:"):
        assert key in result.stderr
    assert "Traceback" not in result.stderr


def test_a_cluster_is_of_real_machines_or_of_this_one(address: str) -> None:
    result = run_command([*TFPS, "serve"], deadline_s=60)
    assert "TF_CONFIG: not set; " in result.stderr
    assert "--scheduler" in result.stderr
    command = [*TFPS, "run", "--scheduler", address, "--workers", "2", __file__]
    result = run_command(command, deadline_s=60)
    assert "remove --workers, --ps" in result.stderr
    assert "or leave out --scheduler" in result.stderr


def test_a_chief_that_does_not_come_ends_the_scheduler(address: str) -> None:
    command = [*TFPS, "scheduler", "--listen", address, "--workers", "1", "--ps", "1"]
    result = run_command(command, deadline_s=60, environment={"TFPS_CHIEF_TIMEOUT_S": "0.5"})
    assert result.returncode == 75
    assert "the chief did not respond for 0.5 s (TFPS_CHIEF_TIMEOUT_S)" in result.stdout
