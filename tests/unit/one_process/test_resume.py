"""`fit` that was stopped goes on in another strategy as if it had never stopped."""

from __future__ import annotations

import itertools
import json
import math
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tests.saves import join_saves
from tests.unit.one_process.lost_servers import recover
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(180)

Make = Callable[..., tfps.ParameterServerStrategy]
EPOCHS, STEPS, BATCH, EVERY = 3, 12, 5, 3
EXAMPLES = STEPS * BATCH
X = np.random.default_rng(0).normal(size=(EXAMPLES, 3)).astype("float32")
Y = X.sum(1, keepdims=True)
IDS = np.arange(EXAMPLES)
ONES = np.ones(EXAMPLES, "float32")


class StoppedError(Exception):
    """Stands for whatever ends a process."""


class Stop(keras.callbacks.Callback):
    """Raises an error after some steps, and keeps which hooks were called."""

    def __init__(self, after: int | None = None, *, hook: str = "batch") -> None:
        super().__init__()
        self.after, self.hook = after, hook
        self.called: list[Any] = []
        self.steps = 0

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        pass

    def on_train_begin(self, logs: Any = None) -> None:
        self.called.append("train")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.called.append(f"epoch {epoch}")

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.called.append(batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps += 1
        self._raise_at("batch")

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self._raise_at("test")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._raise_at("epoch")

    def _raise_at(self, hook: str) -> None:
        if hook == self.hook and self.after is not None and self.steps >= self.after:
            raise StoppedError


@pytest.fixture(scope="module")
def one_task() -> Iterator[InProcessCluster]:
    with InProcessCluster(workers=1, ps=1) as cluster:
        yield cluster


@pytest.fixture
def make_alone(one_task: InProcessCluster) -> Iterator[Make]:
    """A function that makes a strategy of one worker and one server."""
    made: list[tfps.ParameterServerStrategy] = []

    def make(**options: Any) -> tfps.ParameterServerStrategy:
        made.append(tfps.ParameterServerStrategy(one_task.cluster_resolver, **options))
        return made[-1]

    yield make
    for strategy in made:
        strategy.close()


@pytest.fixture(autouse=True)
def _no_seed() -> None:
    tf.random.set_seed(None)


def network(strategy: tfps.ParameterServerStrategy, **options: Any) -> keras.Model:
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((3,)),
                keras.layers.Dense(8, activation="relu"),
                keras.layers.Dropout(0.3),
                keras.layers.Dense(1),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"], **options)
    return model


def counting(strategy: tfps.ParameterServerStrategy, **options: Any) -> keras.Model:
    """Return a model whose weights count how often each example was used."""
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((), dtype="int64"),
                keras.layers.Embedding(EXAMPLES, 1, embeddings_initializer="zeros"),
            ]
        )
        model.compile(keras.optimizers.SGD(float(BATCH)), loss=negative, **options)
    return model


def negative(y_true: Any, y_pred: Any) -> Any:
    return -y_pred


def counts(model: keras.Model) -> np.ndarray[Any, Any]:
    return np.rint(model.get_weights()[0][:, 0]).astype(int)


def resume(folder: Path, **options: Any) -> tfps.callbacks.Resume:
    return tfps.callbacks.Resume(folder, **(options or {"every_steps": EVERY}))


def fit(model: keras.Model, *callbacks: Any, **options: Any) -> keras.callbacks.History:
    arguments: dict[str, Any] = {"x": X, "y": Y, "batch_size": BATCH, "epochs": EPOCHS}
    arguments |= {"verbose": 0, "callbacks": list(callbacks)} | options
    return model.fit(**{k: v for k, v in arguments.items() if v is not None})


def assert_same_history(found: Any, expected: Any) -> None:
    assert found.epoch == expected.epoch
    assert found.history.keys() == expected.history.keys()
    for name, values in expected.history.items():
        np.testing.assert_allclose(found.history[name], values, rtol=1e-5)


def fit_with_stop(
    make_model: Callable[[], keras.Model], folder: Path, stop: Stop, **options: Any
) -> None:
    with pytest.raises(StoppedError):
        fit(make_model(), stop, resume(folder), **options)
    join_saves()


@pytest.mark.quick("one*")
@pytest.mark.parametrize("mode", [None, tfps.Synchronous()], ids=["one worker", "rounds"])
def test_weights_and_history_are_those_of_a_run_that_never_stopped(
    make_alone: Make, make_strategy: Make, tmp_path: Path, mode: Any, pytestconfig: pytest.Config
) -> None:
    make = make_alone if mode is None else lambda: make_strategy(mode)
    plain = network(make())
    expected = fit(plain)
    chance = random.Random(1)
    for trial in range(1 if pytestconfig.getoption("quickly") else 2):
        folder = tmp_path / str(trial)
        stop = Stop(chance.randrange(EVERY + 1, EPOCHS * STEPS))
        fit_with_stop(lambda: network(make()), folder, stop)
        model, seen = network(make()), Stop()
        history = fit(model, seen, resume(folder))
        for mine, other in zip(model.get_weights(), plain.get_weights(), strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-6 if mode is None else 1e-5)
        assert_same_history(history, expected)
        begun = (stop.steps - 1) // EVERY * EVERY  # the callback that saves comes last
        epoch, step = divmod(begun, STEPS)
        if step == 0:  # the results of the epoch were not known
            epoch, step = epoch - 1, STEPS - 1
        elif mode is not None:
            step += step % 2  # to the end of the round
        steps = [range(step, STEPS), *[range(STEPS)] * (EPOCHS - 1 - epoch)]
        hooks = [[f"epoch {epoch + k}", *each] for k, each in enumerate(steps)]
        assert seen.called == ["train", *itertools.chain(*hooks)]


@pytest.mark.repeats
@pytest.mark.quick("make_strategy-*")
@pytest.mark.parametrize(
    ("before", "after"), [("make_strategy", "make_alone"), ("make_alone", "make_strategy")]
)
def test_another_number_of_tasks(
    request: pytest.FixtureRequest, tmp_path: Path, before: str, after: str
) -> None:
    first, second = request.getfixturevalue(before), request.getfixturevalue(after)
    data: dict[str, Any] = {"x": IDS, "y": ONES}
    fit_with_stop(lambda: counting(first()), tmp_path, Stop(17), **data)
    model = counting(second())
    fit(model, resume(tmp_path), **data)
    assert set(counts(model)) == {EPOCHS}


def dataset(*, seed: int | None = None) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((IDS, ONES)).shuffle(EXAMPLES, seed=seed).batch(BATCH)


def on_chief(*, seed: int | None = 4) -> tf.data.Dataset:
    def pass_on(ids: Any, ones: Any) -> Any:
        return tf.numpy_function(lambda x: x, [ids], tf.int64), ones

    def shape(ids: Any, ones: Any) -> Any:
        return tf.ensure_shape(ids, [None]), ones

    return dataset(seed=seed).map(pass_on).map(shape)


class Batches(keras.utils.PyDataset):
    """Batches whose content is shuffled at the end of each epoch."""

    def __init__(self, workers: int = 1) -> None:
        super().__init__(workers=workers)
        self.ids = IDS.copy()

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> Any:
        return self.ids[index * BATCH : (index + 1) * BATCH], ONES[:BATCH]

    def on_epoch_end(self) -> None:
        np.random.shuffle(self.ids)


def unknown_length() -> tf.data.Dataset:
    return dataset().filter(lambda ids, ones: True)


INPUTS: dict[str, dict[str, Any]] = {
    "arrays": {"x": lambda: IDS, "y": ONES},
    "arrays, shuffled in batches": {"x": lambda: IDS, "y": ONES, "shuffle": "batch"},
    "arrays, in parts": {"x": lambda: IDS, "y": ONES, "steps_per_epoch": 4, "epochs": 9},
    "dataset": {"x": dataset},
    "dataset, in parts": {"x": lambda: dataset().repeat(), "steps_per_epoch": 4, "epochs": 9},
    "dataset of unknown length": {"x": unknown_length},
    "dataset on the chief": {"x": on_chief},
    "PyDataset": {"x": Batches},
    "PyDataset with threads": {"x": lambda: Batches(workers=2)},
    "executions of several steps": {"x": lambda: IDS, "y": ONES, "steps_per_execution": 5},
}


@pytest.mark.quick("dataset-22")
@pytest.mark.parametrize("after", [7, 22])
@pytest.mark.parametrize("name", INPUTS)
def test_each_example_is_used_once(
    make_strategy: Make, tmp_path: Path, name: str, after: int
) -> None:
    options = {"y": None, "batch_size": None} | INPUTS[name]
    if options["y"] is not None:
        options["batch_size"] = BATCH
    make_input, several = options.pop("x"), options.pop("steps_per_execution", 1)

    def make_model() -> keras.Model:
        return counting(make_strategy(), steps_per_execution=several)

    stop = Stop(-(-after // several))
    fit_with_stop(make_model, tmp_path, stop, x=make_input(), **options)
    model, seen = make_model(), Stop()
    history = fit(model, seen, resume(tmp_path), x=make_input(), **options)
    assert set(counts(model)) == {EPOCHS}
    assert len(history.history["loss"]) == options.get("epochs", EPOCHS)
    assert seen.called[2] > 0


def anew_inputs() -> dict[str, Any]:
    def generator() -> Iterator[Any]:
        while True:
            yield IDS[:BATCH], ONES[:BATCH]

    def function(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return dataset().shard(context.num_input_pipelines, context.input_pipeline_id)

    return {
        "generator": (generator(), {"steps_per_epoch": STEPS}),
        "dataset function": (function, {}),
        "shards": (tfps.ShardedDataset(function, number=2), {}),
        "unseeded shuffle on the chief": (on_chief(seed=None), {}),
    }


@pytest.mark.rare
@pytest.mark.quick("generator")
@pytest.mark.parametrize("name", anew_inputs())
def test_the_epoch_begins_anew(
    make_strategy: Make, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    x, options = anew_inputs()[name]
    options |= {"y": None, "batch_size": None}
    fit_with_stop(lambda: counting(make_strategy()), tmp_path, Stop(STEPS + 5), x=x, **options)
    capsys.readouterr()
    seen, again = Stop(), anew_inputs()[name][0]
    history = fit(counting(make_strategy()), seen, resume(tmp_path), x=again, **options)
    assert seen.called[:3] == ["train", "epoch 1", 0]
    assert history.epoch == [0, 1, 2]
    assert capsys.readouterr().out.count("; the epoch begins anew, since ") == 1


@pytest.mark.rare
@pytest.mark.quick("test")
@pytest.mark.parametrize("hook", ["test", "epoch"])
def test_a_stop_after_the_last_step_of_an_epoch(
    make_alone: Make, tmp_path: Path, hook: str
) -> None:
    """A validation is repeated, and the results of the epoch are found again."""
    options = {"validation_data": (X[:10], Y[:10])}
    plain = network(make_alone())
    expected = fit(plain, **options)
    fit_with_stop(lambda: network(make_alone()), tmp_path, Stop(2 * STEPS, hook=hook), **options)
    model, seen = network(make_alone()), Stop()
    history = fit(model, seen, resume(tmp_path), **options)
    assert seen.called[:3] == ["train", "epoch 1", STEPS - 1]
    assert_same_history(history, expected)


class Own(keras.callbacks.Callback):
    """Has a state of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def get_state(self) -> dict[str, Any]:
        return {"seen": np.array(self.seen)}

    def set_state(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"].tolist()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seen.append(logs["loss"])


def set_of_callbacks(folder: Path) -> list[Any]:
    return [
        keras.callbacks.EarlyStopping("loss", mode="max", patience=4, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("loss", mode="max", patience=2, factor=0.5),
        keras.callbacks.ModelCheckpoint(folder / "best.keras", "loss", save_best_only=True),
        keras.callbacks.CSVLogger(folder / "log.csv"),
        Own(),
    ]


def test_callbacks_go_on(make_alone: Make, tmp_path: Path) -> None:
    folders = [tmp_path / "plain", tmp_path / "stopped"]
    for folder in folders:
        folder.mkdir()
    plain, expected = network(make_alone()), set_of_callbacks(folders[0])
    history = fit(plain, *expected, epochs=9)
    assert len(history.epoch) == 5  # `EarlyStopping` ended it
    first = set_of_callbacks(folders[1])
    with pytest.raises(StoppedError):
        fit(network(make_alone()), Stop(3 * STEPS + 8), *first, resume(tmp_path / "c"), epochs=9)
    with open(folders[1] / "log.csv", "a") as log:
        log.write("3,0.0,0.0,0.0\n")  # of steps after the checkpoint
    model, found = network(make_alone()), set_of_callbacks(folders[1])
    again = fit(model, *found, resume(tmp_path / "c"), epochs=9)
    assert_same_history(again, history)
    for mine, other in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-6)
    for name in ("wait", "best", "stopped_epoch", "best_epoch"):
        assert getattr(found[0], name) == pytest.approx(getattr(expected[0], name), rel=1e-5)
    assert (found[1].wait, found[1].best) == (expected[1].wait, pytest.approx(expected[1].best))
    assert found[2].best == pytest.approx(expected[2].best)
    assert found[4].seen == pytest.approx(expected[4].seen)
    rows = [(folder / "log.csv").read_text().splitlines() for folder in folders]
    assert [row.split(",")[0] for row in rows[1]] == [row.split(",")[0] for row in rows[0]]
    seen = Stop()
    assert fit(network(make_alone()), seen, resume(tmp_path / "c"), epochs=9).epoch == again.epoch
    assert seen.called == ["train"]  # it had ended early


@pytest.mark.repeats
def test_a_run_that_has_ended(
    make_alone: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = fit(network(make_alone()), resume(tmp_path))
    model, seen = network(make_alone()), Stop()
    files = sorted(tmp_path.rglob("*"))
    assert fit(model, seen, resume(tmp_path)).history == expected.history
    assert seen.called == ["train"]
    assert "the run had ended after 3 epochs" in capsys.readouterr().out
    assert sorted(tmp_path.rglob("*")) == files
    assert fit(model, seen, resume(tmp_path), epochs=4).epoch == [0, 1, 2, 3]
    assert seen.called[1:3] == ["train", "epoch 3"]


@pytest.mark.repeats
def test_beside_fault_tolerance(make_strategy: Make, tmp_path: Path) -> None:
    """Both use one folder, and every checkpoint there has the position."""
    fault_tolerance = tfps.FaultTolerance(checkpoints=tmp_path / "c", every_steps=5)
    strategies = [make_strategy(fault_tolerance=fault_tolerance) for _ in range(2)]
    for strategy in strategies:
        recover(strategy, tmp_path / "c", every_steps=5)
    with pytest.raises(StoppedError):
        fit(counting(strategies[0]), Stop(17), tfps.callbacks.Resume(every_steps=7), x=IDS, y=ONES)
    model, seen = counting(strategies[1]), Stop()
    fit(model, seen, tfps.callbacks.Resume(every_steps=7), x=IDS, y=ONES)
    assert set(counts(model)) == {EPOCHS}
    assert seen.called[1:3] == ["epoch 1", 3]  # from step 15
    manager = tfps.CheckpointManager(model, tmp_path / "c")
    assert all(manifest.state for manifest in manager.checkpoints)


@pytest.mark.rare
def test_time_says_when_it_saves(
    make_strategy: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        now_s = 0.0

        def monotonic(self) -> float:
            return self.now_s

    clock, stops = Clock(), []
    monkeypatch.setattr("tfps.training.resume.time", clock)

    class Steps(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            clock.now_s += 1.0
            stops.append(saving.steps_to_save)

    saving = resume(tmp_path, every_s=10, keep=9)
    model = counting(make_strategy())
    fit(model, Steps(), saving, x=IDS, y=ONES)
    found = [manifest.step for manifest in tfps.CheckpointManager(model, tmp_path).checkpoints]
    assert found == [10, 20, 30, 36]  # the last one at the end
    assert sum(steps == 1 for steps in stops) < 12  # workers rarely wait for the clock


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"every_steps": 5, "every_s": 3}, "every_steps, every_s: received both, expected one"),
        ({"every_steps": 0}, "every_steps: received 0, expected a whole number of at least 1"),
        ({"every_s": math.inf}, "every_s: received inf, expected a number of seconds above 0"),
        ({"keep": 0}, "keep: received 0, expected a whole number of at least 1"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], said: str) -> None:
    with raises(tfps.errors.ConfigError, said):
        tfps.callbacks.Resume("c", **options)


def test_wrong_folders(make_strategy: Make, tmp_path: Path) -> None:
    model = counting(make_strategy())
    data: dict[str, Any] = {"x": IDS, "y": ONES}
    with raises(tfps.errors.ConfigError, "folder: received None, expected the folder"):
        fit(model, tfps.callbacks.Resume(), **data)
    with raises(
        tfps.errors.ConfigError,
        "folder: received '/proc/c': No such file or directory, expected a folder to write to",
    ):
        fit(model, tfps.callbacks.Resume("/proc/c"), **data)
    with raises(tfps.errors.ConfigError, "callbacks: received 2 tfps.callbacks.Resume"):
        fit(model, resume(tmp_path), resume(tmp_path), **data)
    other = counting(make_strategy(fault_tolerance=tfps.FaultTolerance(checkpoints=tmp_path)))
    with raises(tfps.errors.ConfigError, "expected the same folder; leave one of them out"):
        fit(other, resume(tmp_path / "c"), **data)
    assert not counts(model).any()


HOLDER = """
import fcntl, os, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_folder_in_which_a_living_job_saves(make_strategy: Make, tmp_path: Path) -> None:
    model = counting(make_strategy())
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == b"held\n"
        with raises(tfps.errors.ConfigError, str(tmp_path), received="a living job saves"):
            fit(model, resume(tmp_path), x=IDS, y=ONES)
        assert not list(tmp_path.iterdir())
        job.kill()
    fit(model, resume(tmp_path), x=IDS, y=ONES)
    assert list(tmp_path.iterdir())


def test_a_disk_that_is_too_small(
    make_strategy: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=10))
    model = counting(make_strategy())
    with raises(
        tfps.errors.ConfigError, str(tmp_path), received="10 B are free", remedy="free some"
    ):
        fit(model, resume(tmp_path), x=IDS, y=ONES)
    assert not list(tmp_path.iterdir())


def test_checkpoints_that_do_not_fit(make_strategy: Make, tmp_path: Path) -> None:
    fit_with_stop(lambda: counting(make_strategy()), tmp_path, Stop(5), x=IDS, y=ONES)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    model = network(make_strategy())
    with raises(tfps.errors.CheckpointError, "model/embedding/embeddings"):
        fit(model, resume(tmp_path))
    assert int(model.optimizer.iterations.numpy()) == 0
    manifest = next(file for file in before if file.name == "manifest.json")
    values = json.loads(before[manifest]) | {"format": 99}
    manifest.write_text(json.dumps(values))
    before[manifest] = manifest.read_bytes()
    with raises(tfps.errors.CheckpointError, "received a checkpoint of format 99, expected 3"):
        fit(counting(make_strategy()), resume(tmp_path), x=IDS, y=ONES)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


@pytest.mark.repeats
def test_one_of_an_older_version_goes_on_at_its_epoch(make_strategy: Make, tmp_path: Path) -> None:
    model = counting(make_strategy())
    saving = tfps.callbacks.Checkpoint(tfps.CheckpointManager(model, tmp_path))
    fit(model, saving, x=IDS, y=ONES, epochs=2)
    model, seen = counting(make_strategy()), Stop()
    fit(model, seen, resume(tmp_path), x=IDS, y=ONES)
    assert seen.called[:3] == ["train", "epoch 2", 0]
    assert set(counts(model)) == {EPOCHS}


@pytest.mark.repeats
def test_a_damaged_one_is_passed_over(make_strategy: Make, tmp_path: Path) -> None:
    fit_with_stop(lambda: counting(make_strategy()), tmp_path, Stop(17), x=IDS, y=ONES)
    newest = max(tmp_path.iterdir())
    (newest / "state.npz").write_bytes(b"")
    model, seen = counting(make_strategy()), Stop()
    fit(model, seen, resume(tmp_path), x=IDS, y=ONES)
    assert seen.called[:3] == ["train", "epoch 0", STEPS - 1]
    assert set(counts(model)) == {EPOCHS}


@pytest.mark.repeats
def test_models_of_which_no_worker_knows(make_strategy: Make, tmp_path: Path) -> None:
    eager = network(make_strategy(), run_eagerly=True)
    with raises(tfps.errors.UnsupportedError, "compile it without run_eagerly"):
        fit(eager, resume(tmp_path))
    plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    plain.compile("sgd", "mse")
    with raises(tfps.errors.UnsupportedError, "created in strategy.scope()"):
        fit(plain, resume(tmp_path))


@pytest.mark.rare
def test_an_attribute_that_is_not_saved_is_named_once(
    make_strategy: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Counter(keras.callbacks.Callback):
        batches = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.batches += 1

    fit(counting(make_strategy()), Counter(), resume(tmp_path), x=IDS, y=ONES)
    lines = [record.message for record in caplog.records if "get_state()" in record.message]
    assert len(lines) == 1
    assert lines[0].startswith("Counter changed attributes")
