"""`tfps train`: signals, and tasks that die."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.harness.command import Command
from tests.harness.leaks import assert_no_leaks
from tests.integration.library_lines import RAW
from tests.integration.train.commands import ALONE, DEADLINE_S, RESULTS, SMALL, SUBSET, TFPS
from tfps.recovery.events import EventLog

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(400)]


@pytest.mark.parametrize(
    ("number", "status"),
    [
        pytest.param(signal.SIGINT, 130, id="SIGINT"),
        pytest.param(signal.SIGTERM, 143, id="SIGTERM"),
    ],
)
def test_a_signal_ends_the_job_and_all_its_processes(tmp_path, number, status):
    with (
        assert_no_leaks(),
        Command(
            [*TFPS, "train", *SMALL, "--set", "training.epochs=400"],
            deadline_s=DEADLINE_S,
            environment=ALONE,
            folder=tmp_path,
        ) as command,
    ):
        command.wait_for("Epoch 2/400")
        _check_that_the_parent_has_no_tensorflow(command)
        command.send(number)
        assert command.wait() == status, command.describe()
        logs = "runs/fashion_mnist/logs"
        stopping = f"tfps: {number.name}: stopping (repeat to stop at once); logs in {logs}\n"
        saving = f"tfps: {number.name}: fit saves and ends (repeat to stop at once)\n"
        assert command.errors == stopping + saving
        assert "the same command goes on there" in command.output
        assert not RAW.search(command.output + command.errors)
    assert not (tmp_path / "runs" / "fashion_mnist" / "result.json").exists()


def _check_that_the_parent_has_no_tensorflow(command):
    """Check that only the processes that the parent has started load TensorFlow."""

    def maps(process):
        return Path(f"/proc/{process}/maps").read_text()

    (chief,) = [task for task in command.children() if "train" in task.cmdline()[1:6]]
    assert "libtensorflow" in maps(chief.pid)
    assert "libtensorflow" not in maps(command.process.pid)


def _wait_for_status(process, status):
    ends_at = time.monotonic() + 20
    while process.status() != status:
        assert time.monotonic() < ends_at, process.status()
        time.sleep(0.05)


def test_a_killed_chief_is_reported_and_ends_the_job(tmp_path):
    # An optimizer's arguments are what Keras has to be asked for.
    job = [*SMALL, "--set", "training.epochs=400", "--set", "training.optimizer.beta_1=0.8"]
    with (
        assert_no_leaks(),
        Command(
            [*TFPS, "train", *job], deadline_s=DEADLINE_S, environment=ALONE, folder=tmp_path
        ) as command,
    ):
        command.wait_for("Epoch 2/400")
        _check_that_the_parent_has_no_tensorflow(command)
        (chief,) = [task for task in command.children() if "train" in task.cmdline()[1:6]]
        command.send(signal.SIGTSTP)  # as a terminal's Ctrl-Z does, and `fg` after it
        _wait_for_status(chief, psutil.STATUS_STOPPED)
        _wait_for_status(psutil.Process(command.process.pid), psutil.STATUS_STOPPED)
        (epoch,) = re.findall(r"Epoch (\d+)/400", command.output)[-1:]
        command.send(signal.SIGCONT)
        command.wait_for(f"Epoch {int(epoch) + 1}/400")
        chief.send_signal(signal.SIGKILL)
        assert command.wait() == 137, command.describe()
        errors = command.errors
    assert re.search(r"(?m)^tfps: chief ended by SIGKILL; its last lines:$", errors), errors
    assert "Its log: runs/fashion_mnist/logs/chief-0.log\n" in errors
    events = EventLog(tmp_path / "runs" / "fashion_mnist" / "events.jsonl").read()
    assert (events[-1].event, events[-1].status) == ("job_ended", -9)


def test_the_next_chief_of_a_job_with_a_name_goes_on(tmp_path):
    job = [*SMALL, "--set", "training.epochs=6", "--set", "job.name=night"]
    with (
        assert_no_leaks(),
        Command(
            [*TFPS, "train", *job], deadline_s=DEADLINE_S, environment=ALONE, folder=tmp_path
        ) as command,
    ):
        command.wait_for("Epoch 3/6")
        (chief,) = [task for task in command.children() if "train" in task.cmdline()[1:6]]
        chief.send_signal(signal.SIGKILL)
        assert command.wait() == 0, command.describe()
        errors, printed = command.errors, command.output
    assert "chief ended by SIGKILL and is started again in 250 ms (restart 1 of 3); its" in errors
    assert printed.count("job      night resumes at epoch 3\n") == 1
    output = tmp_path / "runs" / "fashion_mnist"
    result = json.loads((output / "result.json").read_text())
    assert [epoch["epoch"] for epoch in result["history"]] == [3, 4, 5, 6]
    # What was seen of the third epoch before counts; it begins again.
    assert 6 * 9_500 <= result["examples_seen"] < 7 * 9_500
    assert result["test_accuracy"] > 0.8
    events = EventLog(output / "events.jsonl").read()
    of_chief = [(e.event, e.restarts) for e in events if e.task == "chief 0"]
    assert of_chief == [("task_died", 1), ("task_restarted", 1)]


def test_a_lost_server_is_told_in_short(tmp_path):
    with Command(
        [*TFPS, "train", *SMALL, "--set", "training.epochs=400", "--set", "recovery.every_s=0"],
        deadline_s=DEADLINE_S,
        environment=ALONE,
        folder=tmp_path,
    ) as command:
        command.wait_for("Epoch 2/400")
        [server] = [task for task in command.children() if task.name() == "ps 0"]
        server.send_signal(signal.SIGKILL)
        assert command.wait() == 1, command.describe()
        assert "Traceback" not in command.errors
        assert not RAW.search(command.output + command.errors.replace(str(tmp_path), ""))
        errors = command.errors
    assert "tfps: ps 0 ended by SIGKILL; its last lines:\n  | tfps: ps 0 serves" in errors
    assert errors.endswith(
        "Error: The job cannot continue: what ps 0 held is lost with it. Start the job again from "
        "its last checkpoint.\n"
    )


# Quicker ones: cluster/recovery/test_restarts.py trains on, integration/run/test_local.py has a
# command, and unit/job/test_local_tasks.py what `tfps train` adds.
def test_workers_that_die_are_started_again_and_train(tmp_path):
    with Command(
        [*TFPS, "train", *SMALL, "--set", "training.epochs=400", "--set", "recovery.every_s=0"],
        deadline_s=DEADLINE_S,
        environment=ALONE,
        folder=tmp_path,
    ) as command:
        command.wait_for("Epoch 2/400")
        for task in command.children():
            if task.name().startswith("worker "):
                task.send_signal(signal.SIGKILL)
        for name in ("worker 0", "worker 1"):
            command.wait_for(f"{name} ended by SIGKILL and is started again in 250 ms")
            command.wait_for(f"{name} is back after")
        (epoch,) = re.findall(r"Epoch (\d+)/400", command.output)[-1:]
        command.wait_for(f"Epoch {int(epoch) + 2}/400")
        assert "Start them again" not in command.errors
        for task in command.children():
            if task.name().startswith("ps "):
                task.send_signal(signal.SIGKILL)
        assert command.wait() == 1
    events = (tmp_path / "runs" / "fashion_mnist" / "events.jsonl").read_text()
    assert events.count('"event":"task_restarted"') == 2
    assert '"reason":"what ps 0 held is lost' in events.splitlines()[-1]


def test_a_lost_server_is_started_again_and_training_goes_on(tmp_path):
    recovery = ["recovery.every_s=1", "training.epochs=6", "model.name=mlp"]
    with (
        assert_no_leaks(),
        Command(
            [*TFPS, "train", *SUBSET, *(part for each in recovery for part in ("--set", each))],
            deadline_s=DEADLINE_S,
            environment=ALONE,
            folder=tmp_path,
        ) as command,
    ):
        command.wait_for("Epoch 3/6")
        [server] = [task for task in command.children() if task.name() == "ps 0"]
        server.send_signal(signal.SIGKILL)
        assert command.wait() == 0, command.describe()
        errors, printed = command.errors, command.output
    assert "ps 0 ended by SIGKILL and is started again in 250 ms (restart 1 of 3)" in errors
    assert re.search(r"back again: ps 0 \(back at update \d+ of \d+: \d+ updates? lost", errors), (
        errors
    )
    assert re.search(r"^1 restart: ps 0 \(SIGKILL, back at update \d+ of \d+: ", printed, re.M), (
        printed
    )
    output = tmp_path / "runs" / "fashion_mnist"
    result = json.loads((output / "result.json").read_text())
    assert result["examples_seen"] == 6 * 9_500
    assert result["test_accuracy"] > 0.5
    assert {path.name for path in output.iterdir()} == RESULTS


def test_the_same_command_goes_on_with_a_run_that_was_killed(tmp_path):
    settings = ["training.epochs=6", "model.name=mlp", "recovery.every_steps=50"]
    command = [*TFPS, "train", *SUBSET, *(part for each in settings for part in ("--set", each))]
    options = {"deadline_s": DEADLINE_S, "environment": ALONE, "folder": tmp_path}
    with assert_no_leaks(), Command(command, **options) as killed:
        killed.wait_for("Epoch 4/6")
        for task in killed.children():
            task.kill()
        assert killed.wait() != 0
    with assert_no_leaks(), Command([*command, "--set", "data.batch_size=32"], **options) as other:
        assert other.wait() == 1
        assert "data.batch_size: received 32, but the unfinished run in" in other.errors
    with assert_no_leaks(), Command([*command, "--resume"], **options) as again:
        assert again.wait() == 0, again.describe()
        assert "(goes on with an unfinished run; --overwrite begins anew)" in again.output
        assert re.search(r"goes on with epoch [34], after \d+ of its steps", again.output)
    result = json.loads((tmp_path / "runs" / "fashion_mnist" / "result.json").read_text())
    assert [epoch["epoch"] for epoch in result["history"]] == [1, 2, 3, 4, 5, 6]
    assert result["examples_seen"] == 6 * 9_500
    with Command([*command, "--resume"], **options) as finished:
        assert finished.wait() == 1
        assert "has no unfinished run of this job" in finished.errors
