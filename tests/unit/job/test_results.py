"""What a run leaves behind: curves, pictures, numbers, and where they go."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tfps.errors import ConfigError, DataError
from tfps.job.bundle import example
from tfps.job.curves import Curves
from tfps.job.figures import draw_confusion, draw_curves, draw_staleness
from tfps.job.inputs import split
from tfps.job.job import RESULT_FILES, prepare_output
from tfps.job.result import Result, package_versions

PNG = b"\x89PNG\r\n\x1a\n"


def test_curves_grow_by_epochs():
    curves = Curves(loss=(), accuracy=())
    for _ in range(2):
        curves = curves.with_epoch(
            loss=0.5, accuracy=0.8, validation={"val_loss": 0.6, "val_accuracy": 0.7}, examples=10
        )
    assert curves == Curves((0.5, 0.5), (0.8, 0.8), (0.6, 0.6), (0.7, 0.7), 20)


@pytest.mark.parametrize("validation", [(), (0.3, 0.2)])
def test_pictures_are_written(tmp_path, validation):
    curves = Curves((0.5, 0.4), (0.8, 0.9), validation, validation)
    draw_curves(curves, tmp_path / "curves.png", title="title")
    matrix = np.array([[3, 0], [1, 0]])
    draw_confusion(matrix, tmp_path / "matrix.png", classes=("a", "b"), title="title")
    assert (tmp_path / "curves.png").read_bytes().startswith(PNG)
    assert (tmp_path / "matrix.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("counts", [{}, {0: 7}, {0: 3, 1: 9, 17: 1}])
def test_staleness_is_drawn(tmp_path, counts):
    draw_staleness(counts, tmp_path / "staleness.png", title="title")
    assert (tmp_path / "staleness.png").read_bytes().startswith(PNG)


def test_result_has_the_fields_of_the_contract(tmp_path):
    result = Result(
        test_accuracy=0.91234567,
        test_loss=0.25,
        train_seconds=60.0,
        examples_seen=1000,
        steps_per_s=100.0,
        pull_seconds={"p50": 0.001, "p99": None},
        push_seconds=None,
        update_seconds=None,
        gradient_staleness_updates={0: 3, 2: 1},
        gradients_dropped=0,
        data_source="here",
        package_versions=package_versions(),
    )
    result.write(tmp_path / "result.json")
    written = json.loads((tmp_path / "result.json").read_text())
    assert list(written) == [
        "test_accuracy",
        "test_loss",
        "train_seconds",
        "examples_seen",
        "steps_per_s",
        "pull_seconds",
        "push_seconds",
        "update_seconds",
        "gradient_staleness_updates",
        "gradients_dropped",
        "data_source",
        "package_versions",
    ]
    assert written["test_accuracy"] == 0.912346
    assert written["gradient_staleness_updates"] == {"0": 3, "2": 1}
    assert written["pull_seconds"] == {"p50": 0.001, "p99": None}
    assert set(written["package_versions"]) >= {"python", "tfps", "tensorflow", "keras"}
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_earlier_results_are_mentioned(tmp_path):
    said: list[str] = []
    output = prepare_output(tmp_path / "a" / "b", say=said.append)
    assert output.is_dir()
    (output / RESULT_FILES[0]).touch()
    prepare_output(output, say=said.append)
    assert said == [
        f"output   {output}",
        f"output   {output} (will replace an earlier run's results)",
    ]


def test_an_output_folder_that_is_a_file_is_a_mistake(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"training\.output"):
        prepare_output(tmp_path / "file" / "runs", say=print)


def test_validation_images_are_held_out():
    data = example("fashion_mnist").data.load(source="subset")
    inputs = split(data, validation_fraction=0.05)
    assert inputs.sizes() == "9,500 training, 500 validation and 3,000 test images"
    assert np.array_equal(inputs.x_validation, data.x_train[9500:])
    assert inputs.steps_per_epoch(64) == 149
    assert split(data, validation_fraction=0.0).validation_data is None
    with pytest.raises(DataError, match=r"data\.validation_fraction"):
        split(data, validation_fraction=0.99999)
