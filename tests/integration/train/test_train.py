"""`tfps train`: the reference job on the shipped subset, as a whole."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.harness.command import Command, run_command
from tests.harness.leaks import assert_no_leaks
from tests.integration.library_lines import RAW
from tests.integration.project import pages
from tests.integration.train.commands import ALONE, DEADLINE_S, RESULTS, SMALL, SUBSET, TFPS
from tfps.cluster import ClusterSpec, lease_ports
from tfps.config import load
from tfps.config.bundle import config_path
from tfps.job.figures import draw_all
from tfps.recovery.events import EventLog

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def epochs(pytestconfig) -> int:
    """Half of the reference job in `make test`, all of it in `make test-all`."""
    return 3 if pytestconfig.getoption("quickly") else 6


@pytest.fixture(scope="module")
def settings(epochs) -> list[str]:
    return [*SUBSET, "--set", f"training.epochs={epochs}"]


@pytest.fixture(scope="module")
def reference(settings, tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("reference")
    with assert_no_leaks():
        result = run_command(
            [*TFPS, "train", *settings], deadline_s=DEADLINE_S, environment=ALONE, folder=folder
        )
    assert result.returncode == 0, result.stdout + result.stderr
    return folder / "runs" / "fashion_mnist", result


def test_reference_job_reaches_its_accuracy(reference, epochs):
    output, _ = reference
    result = json.loads((output / "result.json").read_text())
    assert result["test_accuracy"] >= {3: 0.83, 6: 0.86}[epochs]
    assert 0 < result["test_loss"] < 0.6
    assert result["examples_seen"] == epochs * 9_500
    assert result["mode"] == "asynchronous"
    assert (result["cluster"]["workers"], result["cluster"]["ps"]) == (2, 1)
    assert set(result["cluster"]["tasks"]) == {"chief 0", "worker 0", "worker 1", "ps 0"}
    assert result["worker_lives"] == [1, 1]
    history = result["history"]
    assert [epoch["epoch"] for epoch in history] == [*range(1, epochs + 1)]
    assert all({"loss", "val_loss", "val_accuracy"} < set(e["metrics"]) for e in history)
    assert sum(epoch["seconds"] for epoch in history) < result["train_seconds"]
    rates = [epoch["steps_per_s"] for epoch in history]
    assert result["steps_per_s"] == pytest.approx(
        epochs / sum(1 / rate for rate in rates), rel=1e-3
    )
    assert len(result["confusion_matrix"]) == len(result["classes"]) == 10
    assert result["data_source"] == "shipped subset (10,000 + 3,000 images)"
    assert set(result["package_versions"]) >= {"tfps", "tensorflow", "keras"}
    assert sum(result["gradient_staleness_updates"].values()) == epochs * 149
    assert result["gradients_dropped"] == 0
    for name in ("pull_seconds", "push_seconds", "update_seconds"):
        assert 0 < result[name]["p50"] <= result[name]["p99"]


def test_a_run_has_one_rate(reference, epochs):
    """The lines of the epochs, the last line and the file say the same."""
    output, run = reference
    result = json.loads((output / "result.json").read_text())
    # A slow machine shows the last step before the validation as well.
    lines = [line for line in run.stdout.splitlines() if line.startswith("149/149")]
    ends = [line for line in lines if "val_loss" in line]
    shown = [int(rate) for line in ends for rate in re.findall(r"(\d+) steps/s", line)]
    assert shown == [round(epoch["steps_per_s"]) for epoch in result["history"]]
    (last,) = re.findall(r"Test accuracy .* (\d+) steps/s", run.stdout)
    assert int(last) == round(result["steps_per_s"])
    assert min(shown) <= int(last) <= max(shown)
    assert re.search(rf"Trained in .* \({epochs * 149} steps in .*\) with a mean", run.stdout)


def test_pictures_can_be_drawn_again(reference, tmp_path):
    output, _ = reference
    draw_all(json.loads((output / "result.json").read_text()), tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {name for name in RESULTS if name.endswith(".png")}
    for name in names:
        assert (tmp_path / name).read_bytes() == (output / name).read_bytes()


def test_everything_is_in_the_output_folder(reference, settings):
    output, _ = reference
    assert {path.name for path in output.iterdir()} == RESULTS
    assert {path.name for path in (output / "logs").iterdir()} == {
        "chief-0.log",
        "worker-0.log",
        "worker-1.log",
        "ps-0.log",
    }
    events = EventLog(output / "events.jsonl").read()
    assert [event.event for event in events] == ["job_started", *["task_started"] * 3, "job_ended"]
    assert events[-1].status == 0
    last = json.loads((output / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["stats"]["updates_applied"] == sum(last["stats"]["worker_steps"]) > 0
    assert {*last["usage"]} == {"chief 0", "worker 0", "worker 1", "ps 0"}
    assert load(output / "config.toml") == load(config_path(None), settings[1::2])
    assert tomllib.loads((output / "config.toml").read_text())["cluster"]["workers"] == 2


def test_the_terminal_shows_progress_and_no_library_noise(reference, epochs):
    _, result = reference
    shown = result.stdout + result.stderr
    assert not [line for line in shown.splitlines() if RAW.search(line)], shown
    assert result.stderr == ""
    for expected in (
        "This run uses the shipped subset",
        "--set data.path=FOLDER",
        "9,500 training, 500 validation and 3,000 test images",
        "cnn, 220,234 parameters",
        "1 chief, 2 workers, 1 parameter server on this machine",
        f"Epoch {epochs}/{epochs}",
        "steps/s",
        "2/2 workers",
        "staleness",
        "val_accuracy",
        "Test accuracy 0.8",
    ):
        assert expected in result.stdout


def test_the_pages_show_what_it_prints(reference):
    """Names, in their order within a line; the pages' run had all images, this one a part."""
    _, result = reference
    printed = [_without_numbers(line) for line in result.stdout.splitlines()]
    shown = [
        _without_numbers(line)
        for sample in pages.samples("make train")
        for line in re.split(r"^\[4/4\].*\n", sample.text, flags=re.M)[1].splitlines()
    ]
    assert len(shown) > 12
    missing = [
        line
        for line in shown
        if not any(re.search(re.escape(line).replace(r"\.\.\.", ".*"), one) for one in printed)
    ]
    assert missing == []


def _without_numbers(line):
    return re.sub(r"\d[\d.,]*", "N", line.strip())


@pytest.mark.repeats
def test_plain_keras_loads_the_saved_model(reference):
    output, _ = reference
    program = f"""
import sys, keras
model = keras.saving.load_model({str(output / "model.keras")!r})
assert not [name for name in sys.modules if name.startswith("tfps")]
from tfps.config.bundle import find_example
data = find_example("fashion_mnist").module("data").load(source="subset")
loss, accuracy = model.evaluate(data.x_test, data.y_test, batch_size=512, verbose=0)
print(f"accuracy {{accuracy:.6f}}")
"""
    loaded = run_command([sys.executable, "-c", program], deadline_s=120, environment=ALONE)
    assert loaded.returncode == 0, loaded.stderr
    (found,) = map(float, re.findall(r"accuracy ([\d.]+)", loaded.stdout))
    reached = json.loads((output / "result.json").read_text())["test_accuracy"]
    assert found == pytest.approx(reached, abs=1e-3)


# Quicker ones: the job above, whose chief has a TF_CONFIG, too; a server of `tfps train` in
# ../run/test_roles.py; and tasks with a TF_CONFIG each in ../run/test_namespaces.py.
@pytest.mark.repeats
def test_every_task_of_a_tf_config_cluster_ends_well_and_the_chief_alone_writes(tmp_path):
    with assert_no_leaks(), lease_ports(3) as lease:
        addresses = [f"127.0.0.1:{port}" for port in lease.ports]
        jobs = {"chief": addresses[:1], "worker": addresses[1:2], "ps": addresses[2:]}
        spec = ClusterSpec(jobs={name: tuple(value) for name, value in jobs.items()})
        commands = []
        for task_type, index, address in spec.tasks():
            folder = tmp_path / f"{task_type}-{index}"
            folder.mkdir()
            lease.release(int(address.rpartition(":")[2]))
            commands.append(
                Command(
                    [*TFPS, "train", *SMALL],
                    deadline_s=DEADLINE_S,
                    environment={"TF_CONFIG": json.dumps(spec.tf_config(task_type, index))},
                    folder=folder,
                )
            )
        try:
            statuses = [command.wait() for command in commands]
            assert statuses == [0, 0, 0], "\n".join(command.describe() for command in commands)
        finally:
            for command in commands:
                command.__exit__(None, None, None)
    written = sorted(path.parent for path in tmp_path.rglob("result.json"))
    assert written == [tmp_path / "chief-0" / "runs" / "fashion_mnist"]
    for task in ("worker-0", "ps-0"):
        assert list((tmp_path / task).iterdir()) == []


@pytest.mark.repeats
def test_damaged_data_are_named_before_anything_starts(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "train-images-idx3-ubyte.gz").write_bytes(b"no gzip")
    result = run_command(
        [*TFPS, "train", "--set", "data.path=images"],
        deadline_s=60,
        environment=ALONE,
        folder=tmp_path,
    )
    assert result.returncode == 1
    assert result.stdout == ""
    assert "images/train-images-idx3-ubyte.gz: received a corrupt file" in result.stderr
    assert "images/t10k-labels-idx1-ubyte.gz: received no such file" in result.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fashion_mnist_ssp", r"3 workers"),
        ("fashion_mnist_sync", r"3 workers"),
        ("fashion_mnist_stale", r"4 workers"),
    ],
)
def test_other_shipped_jobs_train(tmp_path, name, expected):
    with assert_no_leaks():
        result = run_command(
            [*TFPS, "train", name, *SMALL],
            deadline_s=DEADLINE_S,
            environment=ALONE,
            folder=tmp_path,
        )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(expected, result.stdout), result.stdout
    written = json.loads((tmp_path / "runs" / name / "result.json").read_text())
    assert written["examples_seen"] == 9_500
    assert written["test_accuracy"] > 0.5
