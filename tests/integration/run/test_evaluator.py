"""An evaluator beside a real job, both started by `tfps run` with the same script."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.command import Command
from tfps.cluster import ClusterSpec, lease_ports

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(180)]

DEADLINE_S = 120
KINDS = ("evaluator", "ps", "worker", "chief")
SCRIPT = Path(__file__).with_name("evaluator_script.py")


def _start(environment: dict[str, str], folder: Path) -> Command:
    environment = {"TFPS_CHIEF_TIMEOUT_S": "60", **environment}
    command = [sys.executable, "-m", "tfps", "run", str(SCRIPT), str(folder)]
    return Command(command, deadline_s=DEADLINE_S, environment=environment)


def _lines(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _by_tf_config(stack: contextlib.ExitStack) -> dict[str, dict[str, str]]:
    """Return the variables of each task."""
    lease = stack.enter_context(lease_ports(3))
    chief, worker, ps = ((f"127.0.0.1:{port}",) for port in lease.ports)
    spec = ClusterSpec(jobs={"chief": chief, "worker": worker, "ps": ps})
    return {
        kind: {"TF_CONFIG": json.dumps(spec.tf_config(kind, 0)), "TF_GRPC_REUSE_PORT": "true"}
        for kind in KINDS
    }


def _by_scheduler(stack: contextlib.ExitStack) -> dict[str, dict[str, str]]:
    with lease_ports(1) as lease:
        address = f"127.0.0.1:{lease.ports[0]}"
    options = ["--listen", address, "--workers", "1", "--ps", "1"]
    command = [sys.executable, "-m", "tfps", "scheduler", *options]
    stack.enter_context(Command(command, deadline_s=DEADLINE_S))
    return {kind: {"TFPS_SCHEDULER": address, "TFPS_ROLE": kind} for kind in KINDS}


@pytest.mark.parametrize("describe", [_by_tf_config, _by_scheduler])
def test_an_evaluator_follows_a_job_and_ends_with_it(
    describe: Callable[[contextlib.ExitStack], dict[str, dict[str, str]]], tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        variables = describe(stack)
        tasks = {kind: stack.enter_context(_start(variables[kind], tmp_path)) for kind in KINDS}
        for task_type in ("chief", "worker", "ps", "evaluator"):
            assert tasks[task_type].wait() == 0, tasks[task_type].describe()
        printed = tasks["evaluator"].output
    trained = _lines(tmp_path / "trained")
    evaluated = _lines(tmp_path / "evaluated")
    assert [line["iterations"] for line in trained] == [8, 16, 24]
    assert evaluated == [pytest.approx(line, abs=1e-6) for line in trained]
    *lines, last = printed.splitlines()
    assert [line.partition(",")[0] for line in lines] == [
        f"evaluation: {name}" for name in ("epoch-1.weights.h5", "epoch-2.keras", "ckpt-3")
    ], printed
    assert last == "evaluation: 3 checkpoints evaluated: all tasks of the cluster have ended"
