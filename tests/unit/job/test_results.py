"""The results of a run: curves, pictures, numbers, and their folders."""

from __future__ import annotations

import dataclasses
import datetime
import json
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from tests.messages import check_message, raises
from tfps.config import parse
from tfps.config.bundle import find_example
from tfps.errors import ConfigError, DataError
from tfps.job.array_inputs import split_off_validation
from tfps.job.epochs import Epoch, TrainingRecord
from tfps.job.figures import draw_all, draw_curves, draw_staleness, pictures_of
from tfps.job.job import RESULT_FILES, prepare_output, run_job
from tfps.job.result import RECORDED_PACKAGES, Result, describe_host, format_now
from tfps.job.workload import workload_of
from tfps.package_versions import package_versions

PICTURES = pictures_of(workload_of("fashion_mnist"))
EPOCHS = [
    Epoch(1, 891, 31.0, 90.0, {"loss": 0.5, "accuracy": 0.8, "val_loss": 0.4, "val_accuracy": 0.9}),
    Epoch(2, 891, 9.0, 110.0, {"loss": 0.3, "accuracy": 0.9, "val_loss": 0.3, "val_accuracy": 0.9}),
]
TRAINING = TrainingRecord(EPOCHS)


def _result(**changes: Any) -> Result:
    result = Result(
        title="CNN on Fashion-MNIST",
        example="fashion_mnist",
        started_at=format_now(),
        mode="synchronous",
        mode_in_words="synchronous, 1 backup worker",
        cluster={
            "workers": 3,
            "ps": 1,
            "tasks": {"chief 0": "a:1", "worker 0": "b:1"},
            "transports": ("direct",),
        },
        host=describe_host(),
        test={
            "test_accuracy": 0.91234567,
            "test_loss": 0.25,
            "classes": ("boot", "coat"),
            "confusion_matrix": [[997, 3], [10, 990]],
        },
        train_seconds=60.0,
        examples_seen=1000,
        steps_per_s=TRAINING.steps_per_s,
        pull_seconds={"p50": 0.001, "p99": None},
        push_seconds=None,
        update_seconds=None,
        encode_seconds=None,
        decode_seconds={"p50": 0.002, "p99": 0.004},
        gradient_staleness_updates={0: 3, 2: 1},
        gradients_dropped=0,
        traffic=(),
        worker_lives=(1, 2, 1),
        history=EPOCHS,
        data_source="here",
        package_versions=package_versions(RECORDED_PACKAGES),
    )
    return dataclasses.replace(result, **changes)


def _loaded(**changes: Any) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(_result(**changes).as_json())
    return loaded


def test_the_rate_of_a_run_lies_between_those_of_its_epochs():
    assert TRAINING.steps == 2 * 891
    assert TRAINING.step_seconds == pytest.approx(891 / 90 + 891 / 110)
    assert TRAINING.steps_per_s == pytest.approx(99.0)
    assert TrainingRecord([*EPOCHS, Epoch(3, 891, 9.0, None, {})]).steps_per_s is None
    assert TrainingRecord([]).steps_per_s is None


def test_result_has_the_fields_of_the_contract(tmp_path):
    _result().write(tmp_path / "result.json")
    text = (tmp_path / "result.json").read_text()
    written = json.loads(text)
    fields = [field.name for field in dataclasses.fields(Result)]
    place = fields.index("test")
    assert list(written) == [*fields[:place], *_result().test, *fields[place + 1 :]]
    older = {
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
    }
    assert older < set(written)
    assert written["test_accuracy"] == 0.912346
    assert written["gradient_staleness_updates"] == {"0": 3, "2": 1}
    assert written["pull_seconds"] == {"p50": 0.001, "p99": None}
    assert written["decode_seconds"] == {"p50": 0.002, "p99": 0.004}
    assert set(written["package_versions"]) >= {"python", "tfps", "tensorflow", "keras"}
    assert datetime.datetime.fromisoformat(written["started_at"]).utcoffset() is not None
    assert written["history"] == [dataclasses.asdict(epoch) for epoch in EPOCHS]
    assert set(written["host"]) == {"name", "system", "cores"}
    assert "    [997, 3],\n" in text  # a row of the matrix is a line
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_every_picture_is_drawn_from_the_file_alone(tmp_path):
    _result().write(tmp_path / "result.json")
    for folder in ("first", "again"):
        (tmp_path / folder).mkdir()
        draw_all(json.loads((tmp_path / "result.json").read_text()), tmp_path / folder)
    names = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert names == sorted(PICTURES)
    for name in names:
        png = (tmp_path / "first" / name).read_bytes()
        assert png.startswith(b"\x89PNG\r\n\x1a\n")
        assert png == (tmp_path / "again" / name).read_bytes()


def _texts(figure: Figure) -> list[str]:
    """All that is written in a picture, once it is drawn."""
    FigureCanvasAgg(figure).draw()
    return [text.get_text() for text in figure.findobj(Text) if text.get_visible()]


@pytest.mark.parametrize("draw", PICTURES.values())
def test_titles_say_what_was_trained_and_how(draw):
    texts = _texts(draw(_loaded()))
    assert any(text.startswith("CNN on Fashion-MNIST: ") for text in texts)
    assert "synchronous, 1 backup worker; 3 workers, 1 parameter server" in texts
    long = _loaded(mode_in_words="bounded staleness, " + "at most 4 steps ahead, " * 4)
    assert any(text.endswith("\n3 workers, 1 parameter server") for text in _texts(draw(long)))


@pytest.mark.parametrize(
    ("number", "validation"), [(1, False), (2, True), (6, False), (40, True), (300, False)]
)
def test_epochs_are_whole_numbers_from_1(number, validation):
    names = ("loss", "accuracy", *(("val_loss", "val_accuracy") if validation else ()))
    history = [Epoch(i, 9, 1.0, 9.0, dict.fromkeys(names, 1 / i)) for i in range(1, number + 1)]
    figure = draw_curves(_loaded(history=history), metric="accuracy")
    _texts(figure)
    plots = [axes for axes in figure.axes if axes.get_xlabel() == "epoch"]
    assert len(plots) == 2
    for axes in plots:
        low, high = axes.get_xlim()
        ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
        assert ticks
        assert all(tick == int(tick) and 1 <= tick <= number for tick in ticks)
        drawn = [np.asarray(line.get_xdata()).tolist() for line in axes.lines]
        assert drawn[0] == list(range(1, number + 1))
        assert drawn[1] == (drawn[0] if validation else [])


@pytest.mark.parametrize("counts", [{}, {0: 7}, {0: 3, 1: 9, 17: 1}, dict.fromkeys(range(64), 2)])
def test_staleness_of_any_shape_is_drawn(counts):
    _texts(draw_staleness(_loaded(gradient_staleness_updates=counts)))


def test_small_shares_of_staleness_are_visible():
    figure = draw_staleness(_loaded(gradient_staleness_updates={0: 72, 1: 5000, 3: 15, 12: 1}))
    texts = _texts(figure)
    assert {"1%", "98%", "0.3%", "<0.1%", "mean of 5,088 gradients"} <= set(texts)
    assert "CNN on Fashion-MNIST: gradients lacked 0.99 updates on average" in texts
    (axes,) = figure.axes
    assert all(bar.get_linewidth() > 0 for bar in axes.patches)  # a line where a bar has no height


def test_earlier_results_are_mentioned(tmp_path):
    said: list[str] = []
    config = parse({"training": {"output": str(tmp_path / "a" / "b")}})
    output = prepare_output(config, say=said.append)
    assert output.is_dir()
    (output / RESULT_FILES[0]).touch()
    prepare_output(config, say=said.append)
    (output / "checkpoints" / "checkpoint-000001").mkdir()
    prepare_output(config, say=said.append)
    assert said == [
        f"output   {output}",
        f"output   {output} (replaces the results of an earlier run)",
        f"output   {output} (goes on with an unfinished run; --overwrite begins anew)",
    ]


def test_an_output_folder_that_is_a_file_is_a_mistake(tmp_path):
    (tmp_path / "file").touch()
    with raises(ConfigError, "training.output", received="runs", remedy="folder"):
        config = parse({"training": {"output": str(tmp_path / "file" / "runs")}})
        prepare_output(config, say=print)


def test_validation_images_are_held_out():
    data = find_example("fashion_mnist").module("data").load(source="subset")
    inputs = split_off_validation(data, validation_fraction=0.05)
    assert inputs.sizes() == "9,500 training, 500 validation and 3,000 test images"
    assert np.array_equal(inputs.x_validation, data.x_train[9500:])
    assert inputs.steps_per_epoch(64) == 149
    assert split_off_validation(data, validation_fraction=0.0).validation_data is None
    with raises(DataError, "data.validation_fraction", received=0.99999, remedy="lower it"):
        split_off_validation(data, validation_fraction=0.99999)


def test_data_that_do_not_suit_the_schedule_are_named_before_anything_starts(tmp_path):
    class Stream:
        """Examples without end."""

        source = "a stream"

        def steps_per_epoch(self, batch_size):
            return None

    def connect():
        raise AssertionError("nothing may start")

    training = {"output": str(tmp_path / "out")}
    with pytest.raises(ConfigError) as raised:
        run_job(parse({"training": training}), Stream(), connect=connect, say=print)  # type: ignore[arg-type]
    (problem,) = raised.value.problems
    key = "training.learning_rate_schedule"
    check_message(problem, key, received="'cosine'", remedy="'constant'")
    assert not (tmp_path / "out").exists()
