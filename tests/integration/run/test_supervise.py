"""`tfps supervise -- COMMAND`: which ends of a task are followed by another start."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.harness.command import Command, run_command

pytestmark = pytest.mark.timeout(120)

DEADLINE_S = 60
ALONE = {"TF_CONFIG": None}
SUPERVISE = [sys.executable, "-m", "tfps", "supervise"]

# Ends as the next line of a file says; the file shrinks with each start.
TASK = """
import os, pathlib, sys, time
path = pathlib.Path(sys.argv[1])
first, *rest = path.read_text().split()
path.write_text(" ".join(rest))
print("started", flush=True)
os.kill(os.getpid(), -int(first)) if int(first) < 0 else None
sys.exit(int(first))
"""


@pytest.mark.quick("crash*", "error")
@pytest.mark.parametrize(
    ("ends", "budget", "status", "starts"),
    [
        pytest.param("-9 75 0", 3, 0, 3, id="crash, no chief, well"),
        pytest.param("1 0", 3, 1, 1, id="error"),
        pytest.param("-15 0", 3, 143, 1, id="asked for"),
        pytest.param("-11 -9 0", 1, 137, 2, id="budget spent"),
        pytest.param("-9 0", 0, 137, 1, id="no budget"),
    ],
)
def test_the_exit_status_says_whether_a_task_is_started_again(
    tmp_path: Path, ends: str, budget: int, status: int, starts: int
) -> None:
    (tmp_path / "ends").write_text(ends)
    (tmp_path / "task.py").write_text(TASK)
    options = ["--restarts", str(budget), "--events", "events.jsonl"]
    result = run_command(
        [*SUPERVISE, *options, "--", sys.executable, "task.py", "ends"],
        deadline_s=DEADLINE_S,
        environment=ALONE,
        folder=tmp_path,
    )
    assert result.returncode == status, result.stderr
    assert result.stdout.count("started") == starts
    assert result.stderr.count("and is started again in") == starts - 1
    records = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    names = [record["event"] for record in records]
    assert names[:2] == ["job_started", "task_started"]
    assert names.count("task_restarted") == starts - 1
    spent = starts - 1 == budget and status > 128
    assert ("task_given_up" in names) is spent
    assert ("is not started again: the budget is" in result.stderr) is spent
    assert names[-1] == "job_ended"


# Goes on from the newest checkpoint, and tells where.
RESUMES = """
import os
import keras, numpy as np, tfps

here = os.path.dirname(__file__)
strategy = tfps.ParameterServerStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
manager = tfps.CheckpointManager(model, os.path.join(here, "saved"))
last = manager.restore_latest()
print("begins at", last.epoch if last else 0, flush=True)

class Watch(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        model.stop_training = last is not None
        print("saved", manager.latest is not None, flush=True)

callbacks = [tfps.callbacks.Checkpoint(manager), Watch()]
model.fit(np.ones([640, 4]), np.ones([640, 1]), batch_size=4, epochs=10_000, verbose=0,
          initial_epoch=last.epoch if last else 0, callbacks=callbacks)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_job_that_lost_a_server_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RESUMES)
    job = [sys.executable, "-m", "tfps", "run", "--workers", "1", "train.py"]
    with Command(
        [*SUPERVISE, "--", *job], deadline_s=250, environment=ALONE, folder=tmp_path
    ) as command:
        command.wait_for("begins at 0(?s:.*)saved True")
        for task in command.children():
            if task.name() == "ps 0":
                task.send_signal(signal.SIGKILL)
        assert command.wait() == 0, command.describe()
        errors, output = command.errors, command.output
    assert "run the script again to resume from " in errors
    assert (
        "command 0 ended with status 75 and is started again in 250 ms (restart 1 of 3)" in errors
    )
    begins = [int(line.split()[-1]) for line in output.splitlines() if "begins at" in line]
    assert len(begins) == 2
    assert begins[1] > 0


@pytest.mark.repeats
def test_a_signal_is_passed_on_and_nothing_started_again() -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(75)))\n"
        "print('ready', flush=True)\ntime.sleep(100)"
    )
    arguments = [*SUPERVISE, "--", sys.executable, "-c", code]
    with Command(arguments, deadline_s=DEADLINE_S, environment=ALONE) as command:
        command.wait_for("ready")
        command.send(signal.SIGTERM)
        assert command.wait() == 75
        assert command.output == "ready\nsaved\n"


@pytest.mark.rare
def test_a_command_that_does_not_exist_is_named() -> None:
    result = run_command(
        [*SUPERVISE, "--", "no-such-program"], deadline_s=DEADLINE_S, environment=ALONE
    )
    assert result.returncode == 1
    assert "COMMAND: received 'no-such-program'" in result.stderr
