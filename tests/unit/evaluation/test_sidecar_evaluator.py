"""The evaluator's numbers are those of `evaluate` in the process that trained."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tests.unit.evaluation.training import (
    STEPS,
    TEST,
    WAYS,
    Training,
    compile_,
    fit,
    network,
    saver,
)
from tfps.evaluation import job_end, sidecar_evaluator
from tfps.evaluation.tensorflow_checkpoint import load_tensorflow_checkpoint

pytestmark = pytest.mark.timeout(120)


class _Over(job_end.UnknownJob):
    """The job is over when the evaluator starts."""

    def end_reason(self) -> str | None:
        return "the test is over"


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecar_evaluator, "end_of_this_job", _Over)


def _evaluate(model: keras.Model, folder: Path, *callbacks: Any, **options: Any) -> None:
    tfps.SidecarEvaluator(model, TEST, folder, callbacks=list(callbacks), **options).start()


def _approximately(numbers: list[dict[str, float]]) -> list[Any]:
    return [pytest.approx(each, abs=1e-6) for each in numbers]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_save(way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained = network()
    training = Training(trained, saver(trained, tmp_path, way))
    model = network()
    _evaluate(model, tmp_path, training, max_evaluations=2)
    assert training.evaluated == _approximately(training.expected)
    assert training.iterations == [STEPS, 2 * STEPS]
    assert [logs["iterations"] for logs in training.begun] == training.iterations
    assert all(Path(logs["checkpoint"]).parent == tmp_path for logs in training.begun)
    assert not model.optimizer.built, "slots are of no use to an evaluation"
    first, _, last = capsys.readouterr().out.splitlines()
    accuracy = training.expected[0]["accuracy"]
    assert f", iteration {STEPS}: accuracy {accuracy:.4g}, loss " in first
    assert last == "evaluation: 2 checkpoints evaluated: reached max_evaluations=2"


@pytest.mark.rare
@pytest.mark.parametrize("way", ["model and optimizer", "weights"])
@pytest.mark.parametrize(
    ("optimizer", "iterations"),
    [
        (lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()), STEPS),
        (lambda: keras.optimizers.SGD(gradient_accumulation_steps=2), STEPS // 2),
    ],
)
@pytest.mark.usefixtures("over")
def test_counters(way: str, optimizer: Callable[[], Any], iterations: int, tmp_path: Path) -> None:
    trained, model = network(optimizer=optimizer()), network(optimizer=optimizer())
    fit(trained)
    saver(trained, tmp_path, way)(1)
    _evaluate(model, tmp_path)
    assert int(trained.optimizer.iterations) == iterations
    assert int(model.optimizer.iterations) == iterations


@pytest.mark.usefixtures("over")
def test_without_a_counter_the_step_is_the_number_of_the_name(tmp_path: Path) -> None:
    layers = [keras.Input((6,)), keras.layers.Dense(8), keras.layers.Dense(2)]
    trained = keras.Sequential(layers)  # a custom loop needs no compile()
    trained.save_weights(tmp_path / "epoch-5.weights.h5")
    model = keras.models.clone_model(trained)
    compile_(model)
    _evaluate(model, tmp_path)
    assert int(model.optimizer.iterations) == 5


class Own(keras.Model):
    def __init__(self, *, in_a_list: bool) -> None:
        super().__init__()
        layer = keras.layers.Dense(2)
        self.part = [layer] if in_a_list else layer

    def call(self, x: Any) -> Any:
        return (self.part[0] if isinstance(self.part, list) else self.part)(x)


@pytest.mark.slow
@pytest.mark.usefixtures("over")
@pytest.mark.parametrize("way", ["model", "weights"])
def test_a_model_that_is_built_by_its_first_batch(way: str, tmp_path: Path) -> None:
    trained, model = Own(in_a_list=way == "weights"), Own(in_a_list=way == "weights")
    for each in (trained, model):
        compile_(each)
    fit(trained)
    saver(trained, tmp_path, way)(1)
    _evaluate(model, tmp_path)
    assert model.evaluate(TEST, verbose=0) == pytest.approx(trained.evaluate(TEST, verbose=0))


@pytest.mark.rare
@pytest.mark.usefixtures("over")
def test_what_keras_leaves_out_of_a_checkpoint_is_named(tmp_path: Path) -> None:
    trained, model = Own(in_a_list=True), Own(in_a_list=True)
    for each in (trained, model):
        compile_(each)
    fit(trained)
    saver(trained, tmp_path, "model and optimizer")(1)
    remedy = "'NAME.weights.h5'"
    with raises(tfps.errors.CheckpointError, "kernel", received="2 of 2 weights", remedy=remedy):
        _evaluate(model, tmp_path)


@pytest.mark.usefixtures("over")
@pytest.mark.parametrize("way", ["model", "root", "weights", "keras"])
def test_a_checkpoint_of_another_model(way: str, tmp_path: Path) -> None:
    trained = network(units=5)
    saver(trained, tmp_path, way)(1)
    error = tfps.errors.CheckpointError
    with raises(error, "kernel has the shape", received="(6, 5)", remedy="(6, 8)") as caught:
        _evaluate(network(), tmp_path)
    assert len(str(caught.value)) < 600, "without the values of the weights"


@pytest.mark.rare
@pytest.mark.usefixtures("over")
@pytest.mark.quick("keras")
@pytest.mark.parametrize("way", ["model", "weights", "keras"])
def test_a_damaged_checkpoint_is_skipped(
    way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained, model = network(), network()
    save = saver(trained, tmp_path, way)
    save(1)
    whole = trained.evaluate(TEST, verbose=0)
    fit(trained)
    save(2)
    newest = max(tmp_path.glob("*2*"), key=lambda path: path.stat().st_size)
    os.truncate(newest, newest.stat().st_size // 2)
    _evaluate(model, tmp_path)
    assert "cannot read it: " in caplog.text
    assert model.evaluate(TEST, verbose=0) == pytest.approx(whole, abs=1e-6)


@pytest.mark.slow
def test_a_file_may_be_written_again_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HDF5 refuses to write a file that is open for reading; the training would fail."""
    trained, model = network(), network()
    training = Training(trained, saver(trained, tmp_path, "weights in place"))
    load = keras.layers.BatchNormalization.load_own_variables

    def load_while_training(self: Any, store: Any) -> None:
        if len(training.expected) == 1:
            training.advance()
        load(self, store)

    layer = keras.layers.BatchNormalization
    monkeypatch.setattr(layer, "load_own_variables", load_while_training)
    _evaluate(model, tmp_path, training, max_evaluations=1)
    assert training.evaluated == _approximately(training.expected[1:2])


@pytest.mark.slow
@pytest.mark.usefixtures("over")
@pytest.mark.parametrize(("after_reading", "evaluated"), [(False, 1), (True, 2)])
def test_a_checkpoint_may_be_deleted_while_it_is_read(
    after_reading: bool, evaluated: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, model = network(), network()
    save = saver(trained, tmp_path, "model")
    expected = {}
    for number in (1, 2):
        fit(trained)
        save(number)
        expected[number] = trained.evaluate(TEST, verbose=0)
    load = load_tensorflow_checkpoint

    def load_and_delete(path: str, *arguments: Any) -> int | None:
        count = load(path, *arguments) if after_reading else None
        for file in tmp_path.glob("ckpt-2.*"):
            file.unlink()
        return count if after_reading else load(path, *arguments)

    monkeypatch.setattr(sidecar_evaluator, "load_tensorflow_checkpoint", load_and_delete)
    _evaluate(model, tmp_path)
    assert model.evaluate(TEST, verbose=0) == pytest.approx(expected[evaluated], abs=1e-6)


@pytest.mark.rare
def test_tensorboard_gets_one_curve_over_the_iterations(tmp_path: Path) -> None:
    trained = network()
    training = Training(trained, saver(trained, tmp_path / "checkpoints", "model"))
    tensorboard = keras.callbacks.TensorBoard(tmp_path / "logs")
    seen: list[list[int]] = []

    def read(logs: Any) -> None:
        seen.append(_steps(tmp_path / "logs" / "validation"))

    after = keras.callbacks.LambdaCallback()
    after.on_test_begin = read  # what the evaluation before has written
    _evaluate(network(), tmp_path / "checkpoints", tensorboard, training, after, max_evaluations=2)
    assert seen == [[], [STEPS]]
    assert _steps(tmp_path / "logs" / "validation") == [STEPS, 2 * STEPS]


def _steps(folder: Path) -> list[int]:
    files = list(folder.glob("*"))
    assert len(files) <= 1, "each checkpoint would have a file of its own"
    return [
        event.step
        for file in files
        for event in tf.compat.v1.train.summary_iterator(str(file))
        for value in event.summary.value
        if value.tag == "evaluation_accuracy_vs_iterations"
    ]


def test_the_best_model_is_kept(tmp_path: Path) -> None:
    """All of tf_keras's arguments are taken."""
    trained = network(optimizer=keras.optimizers.SGD(2.0))
    training = Training(trained, saver(trained, tmp_path, "weights"), last=3)
    best = tfps.SidecarEvaluatorModelExport(
        tmp_path / "best" / "best-{epoch}-{iterations}.keras",
        tmp_path / "epoch-{epoch}.weights.h5",
        save_freq="eval",
        monitor="loss",
        mode="min",
        verbose=0,
    )
    _evaluate(network(), tmp_path, best, training, max_evaluations=3)
    losses = [logs["loss"] for logs in training.evaluated]
    improved = [n for n, loss in enumerate(losses, 1) if loss == min(losses[:n])]
    files = sorted((tmp_path / "best").iterdir())
    assert [file.name for file in files] == [f"best-{n}-{n * STEPS}.keras" for n in improved]
    loaded = keras.saving.load_model(files[-1])
    assert loaded.evaluate(TEST, verbose=0)[0] == pytest.approx(min(losses), abs=1e-6)


def test_mistakes_are_named_at_once(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(2)])
    with pytest.raises(tfps.errors.ConfigError) as caught:
        tfps.SidecarEvaluator(model, TEST, tmp_path, steps=0, max_evaluations=-1)
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "model",
        "steps",
        "max_evaluations",
    ]
    assert "is not compiled" in str(caught.value)
    with raises(tfps.errors.ConfigError, "model", received="function", remedy="keras.Model"):
        tfps.SidecarEvaluator(network, TEST, tmp_path)
    path = tmp_path / "a.keras"
    path.touch()
    with raises(tfps.errors.ConfigError, "checkpoint_dir", received=path, remedy="folder"):
        tfps.SidecarEvaluator(network(), TEST, path)
    in_scope = network()
    in_scope._distribute_strategy = object.__new__(tfps.ParameterServerStrategy)
    with raises(tfps.errors.ConfigError, "model", remedy="outside of strategy.scope()"):
        tfps.SidecarEvaluator(in_scope, TEST, tmp_path)
    with raises(tfps.errors.ConfigError, "checkpoint_dir", received=None, remedy="folder"):
        tfps.SidecarEvaluator(network(), TEST, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("names", "expected"),
    [(None, "does not exist"), ([], "is empty"), (["model.h5"], r"only model\.h5;")],
)
def test_it_says_what_it_waits_for(
    names: list[str] | None,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It also evaluates the checkpoint that comes in the end."""
    folder = tmp_path / "checkpoints"
    if names is not None:
        folder.mkdir()
        for name in names:
            (folder / name).touch()
    trained = network()
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            folder.mkdir(exist_ok=True)
            saver(trained, folder, "weights")(1)

    monkeypatch.setattr("tfps.evaluation.sidecar_evaluator.time.sleep", wait)
    monkeypatch.setattr(sidecar_evaluator, "NOTICE_PAUSE_S", 0.0)
    with caplog.at_level(logging.WARNING):
        _evaluate(network(), folder, max_evaluations=1)
    assert len(waited) == 2
    (record,) = [r for r in caplog.records if r.name == sidecar_evaluator.__name__]
    assert f"{folder}" in record.message
    assert re.search(expected, record.message), record.message
