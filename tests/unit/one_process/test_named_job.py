"""A job with a name outlives its chief: the next strategy of that name goes on with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.messages import check_message, raises
from tfps.bridge.variables.named_resource import NamedResource
from tfps.checkpoint.server_restore import ServerRestore
from tfps.errors import ChiefReplaced, ConfigError
from tfps.strategy import named_job
from tfps.testing import InProcessCluster

X = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
Y = X.sum(1, keepdims=True)
STEPS = 4

Make = Callable[..., tfps.ParameterServerStrategy]


def adam() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(0.01, name="adam")


def momentum() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.1, momentum=0.9, name="sgd")


def _model(
    *, width: int = 3, optimizer: Callable[[], keras.optimizers.Optimizer] = adam
) -> keras.Model:
    """Return a model with names of its own: Keras counts the models of a process."""
    first, second = keras.layers.Dense(width, name="first"), keras.layers.Dense(1, name="second")
    model = keras.Sequential([keras.Input((4,)), first, second], name="model")
    model.compile(optimizer(), "mse")
    return model


def _model_on(strategy: tfps.ParameterServerStrategy, **options: Any) -> keras.Model:
    with strategy.scope():
        return _model(**options)


def _fit(model: keras.Model) -> None:
    model.fit(X, Y, batch_size=8, shuffle=False, verbose=0)


def _values(model: keras.Model) -> list[np.ndarray[Any, Any]]:
    return [np.array(v.numpy()) for v in [*model.variables, *model.optimizer.variables]]


@pytest.fixture
def make() -> Iterator[Make]:
    """Strategies on one worker and two servers; the chief before is forgotten, as one that died."""
    made: list[tfps.ParameterServerStrategy] = []
    with InProcessCluster(workers=1, ps=2) as cluster:

        def make_one(**options: Any) -> tfps.ParameterServerStrategy:
            named_job.OPEN_JOBS.clear()
            options = {"job": "night", "placement": "round_robin", **options}
            made.append(tfps.ParameterServerStrategy(cluster.cluster_resolver, **options))
            return made[-1]

        yield make_one
        for strategy in made:
            strategy.close()


@pytest.mark.rare
@pytest.mark.quick("Asynchronous*")
@pytest.mark.parametrize("mode", [tfps.Asynchronous(), tfps.BoundedStaleness(1)], ids=str)
def test_training_goes_on_as_if_nothing_had_happened(make: Make, mode: Any) -> None:
    """Weights, slots, iterations and counts; the numbers are those of Keras in one process."""
    strategy = make(consistency=mode)
    model = _model_on(strategy)
    begun = model.get_weights()
    _fit(model)
    left, stats = _values(model), strategy.stats()
    another = make(consistency=mode)
    keras.utils.set_random_seed(99)
    model = _model_on(another)
    model.optimizer.build(model.trainable_variables)
    for ours, theirs in zip(_values(model), left, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    now = another.stats()
    assert now.versions == stats.versions
    assert now.examples_seen == stats.examples_seen
    _fit(model)
    assert another.stats().updates_applied == 2 * STEPS
    assert int(model.optimizer.iterations) == 2 * STEPS
    # One process that does both.
    reference = _model()
    reference.set_weights(begun)
    _fit(reference)
    _fit(reference)
    for ours, theirs in zip(_values(model), _values(reference), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def _updates_of_functions(strategy: tfps.ParameterServerStrategy) -> tuple[float, int]:
    """Run some functions more; return the counts of a weight and of its optimizer."""
    with strategy.scope():
        weight = keras.Variable(0.0, name="weight")
        optimizer = keras.optimizers.SGD(-1.0, name="sgd")
        optimizer.build([weight])

    @tf.function
    def step() -> None:
        optimizer.apply([tf.constant(1.0)], [weight])

    for _ in range(STEPS):
        strategy.coordinator.schedule(step)
    strategy.coordinator.join()
    return float(weight.numpy()), int(optimizer.iterations)


@pytest.mark.repeats
def test_scheduled_functions_of_the_next_chief_count(make: Make) -> None:
    """Servers know the functions of the chief before by their numbers, which differ."""
    assert _updates_of_functions(make()) == (STEPS, STEPS)
    assert _updates_of_functions(make()) == (2 * STEPS, 2 * STEPS)


@pytest.mark.rare
def test_an_older_chief_is_refused(make: Make) -> None:
    old = make()
    model = _model_on(old)
    _fit(model)
    new = make()
    with raises(ChiefReplaced, "another chief"):
        _fit(model)
    theirs = _model_on(new)
    _fit(theirs)
    assert int(theirs.optimizer.iterations) == 2 * STEPS


@pytest.mark.repeats
def test_close_and_fresh_end_the_job(make: Make) -> None:
    strategy = make()
    model = _model_on(strategy)
    _fit(model)
    strategy.close()
    again = make()
    model = _model_on(again)
    _fit(model)
    assert again.stats().updates_applied == STEPS
    discarded = make(job=tfps.Job("night", fresh=True))
    model = _model_on(discarded, width=5)
    _fit(model)
    assert discarded.stats().updates_applied == STEPS
    assert int(model.optimizer.iterations) == STEPS


def _variables(strategy: tfps.ParameterServerStrategy) -> set[NamedResource]:
    """The resources of a strategy in the memory of its servers."""
    return {
        resource
        for contents in strategy.runtime.contents
        for resource, record in contents.records.items()
        if record is not None
    }


def _is_there(resource: NamedResource) -> bool:
    with tf.device(resource.device):
        return bool(tf.raw_ops.VarIsInitializedOp(resource=resource.handle()))


@pytest.mark.rare
@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "close"])
def test_nothing_is_left_of_a_job_that_ends(make: Make, fresh: bool) -> None:
    """Copies of an optimizer's counters on other servers go as well, and unopened resources."""
    strategy = make()
    _fit(_model_on(strategy))
    held = _variables(strategy)
    counters = {r.device for r in held if r.shared_name.endswith("adam/iteration")}
    assert counters == set(strategy.runtime.topology.servers)
    another = make(job=tfps.Job("night", fresh=fresh))  # without a model
    if not fresh:
        another.close()
    left = {resource for resource in held if _is_there(resource)}
    assert left <= _variables(another)
    assert not [resource for resource in left if "adam" in resource.shared_name]


@pytest.mark.rare
def test_a_server_that_was_started_anew_when_no_chief_was_there(make: Make, tmp_path: Path) -> None:
    """The error says what to do, and this works."""
    strategy = make()
    model = _model_on(strategy)
    _fit(model)
    tfps.CheckpointManager(model, tmp_path).save(background=False)
    saved = _values(model)
    _fit(model)
    for resource in _variables(strategy):
        if resource.device == strategy.runtime.topology.servers[1]:
            resource.destroy()
    with raises(ConfigError, "'night'", received="ps 1", remedy="fresh=True)") as raised:
        make()
    check_message(str(raised.value), "job", remedy="restore_latest")
    model = _model_on(make(job=tfps.Job("night", fresh=True)))
    assert tfps.CheckpointManager(model, tmp_path).restore_latest() is not None
    for ours, before in zip(_values(model), saved, strict=True):
        np.testing.assert_array_equal(ours, before)


@pytest.mark.rare
def test_another_model_is_refused_and_nothing_changes(make: Make) -> None:
    model = _model_on(make())
    _fit(model)
    left = _values(model)
    refused = make()
    with raises(ConfigError, "first/kernel", received="(4, 5)", remedy="(4, 3)") as raised:
        _model_on(refused, width=5)
    assert isinstance(raised.value, ConfigError)
    _names_all(raised.value, "first/kernel", "first/bias", "second/kernel")
    assert "fresh=True" in raised.value.problems[-1]
    refused.close()  # leaves the job alone, which is another one's
    with raises(ConfigError, "consistency", received="received Synchronous(", remedy="fresh=True"):
        make(consistency=tfps.Synchronous())
    model = _model_on(make())
    model.optimizer.build(model.trainable_variables)
    for ours, theirs in zip(_values(model), left, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.repeats
def test_another_optimizer_is_refused_and_nothing_changes(make: Make) -> None:
    """Its slots would begin at zero, and those of the job would be left aside."""
    model = _model_on(make())
    _fit(model)
    left = _values(model)
    refused = make()
    model = _model_on(refused, optimizer=momentum)
    with raises(ConfigError, "optimizer", received="'sgd'", remedy="'adam'"):
        _fit(model)
    refused.close()
    model = _model_on(make())
    model.optimizer.build(model.trainable_variables)
    for ours, theirs in zip(_values(model), left, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_one_strategy_of_a_process_has_the_job(make: Make) -> None:
    strategy = make()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(named_job.OPEN_JOBS, "clear", lambda: None)
        with raises(ConfigError, "job", received="'night'", remedy="another strategy"):
            make()
        strategy.close()
        make()


def _names_all(error: ConfigError, *names: str) -> None:
    """Check that the error has one problem for each of the names, and no other."""
    assert len(error.problems) == len(names), error
    for name in names:
        assert len([problem for problem in error.problems if name in problem]) == 1


@pytest.mark.rare
def test_every_wrong_shape_is_named_when_the_model_is_built_late(make: Make) -> None:
    """Also the slots, whose optimizer is built with the model: nothing of it is trained."""
    _fit(_model_on(make()))
    strategy = make()
    with strategy.scope():
        layers = keras.layers.Dense(5, name="first"), keras.layers.Dense(1, name="second")
        model = keras.Sequential([*layers], name="model")
        model.compile(keras.optimizers.SGD(0.01, name="sgd"), "mse")
    with pytest.raises(ConfigError) as raised:
        _fit(model)
    _names_all(raised.value, "first/kernel", "first/bias", "second/kernel")
    with pytest.raises(ConfigError) as raised:
        model.get_weights()
    _names_all(raised.value, "first/kernel", "first/bias", "second/kernel")


@pytest.mark.rare
def test_large_variables_keep_their_values(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables whose initial values are drawn on their servers are not drawn again."""
    monkeypatch.setattr("tfps.strategy.extended.WHOLE_BYTES", 40)
    keras.utils.set_random_seed(1)
    model = _model_on(make())
    _fit(model)
    left = model.get_weights()
    keras.utils.set_random_seed(2)
    for ours, theirs in zip(_model_on(make()).get_weights(), left, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.repeats
def test_an_older_chief_restores_and_assigns_nothing(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfps.recovery.chief.succession.CHECK_INTERVAL_S", 0.0)
    old = make()
    model = _model_on(old)
    manager = tfps.CheckpointManager(model, tmp_path)
    _fit(model)
    manager.save()
    new = make()
    theirs = _model_on(new)
    _fit(theirs)
    left = _values(theirs)
    for write in (
        manager.restore_latest,
        lambda: model.set_weights(model.get_weights()),
        lambda: model.weights[0].assign(keras.ops.zeros_like(model.weights[0])),
        lambda: model.optimizer.iterations.assign_add(1),
        lambda: model.weights[0].value.assign_add(np.ones(model.weights[0].shape)),
    ):
        with raises(ChiefReplaced, "another chief"):
            write()
    for ours, before in zip(_values(theirs), left, strict=True):
        np.testing.assert_array_equal(ours, before)


@pytest.mark.rare
def test_a_restore_that_is_on_its_way_when_the_next_chief_begins(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The servers themselves refuse it: the old chief did not check in time which one they obey."""
    model = _model_on(make())
    manager = tfps.CheckpointManager(model, tmp_path)
    _fit(model)
    manager.save()
    theirs: list[keras.Model] = []
    left: list[Any] = []
    fill = ServerRestore.fill

    def next_chief_begins(part: ServerRestore, *arguments: Any) -> None:
        if not theirs:
            theirs.append(_model_on(make()))
            theirs[0].optimizer.build(theirs[0].trainable_variables)
            theirs[0].set_weights([w + 1 for w in theirs[0].get_weights()])
            left[:] = _values(theirs[0])
        fill(part, *arguments)

    monkeypatch.setattr(
        "tfps.checkpoint.restore.run_in_parallel", lambda calls: [c() for c in calls]
    )
    monkeypatch.setattr(ServerRestore, "fill", next_chief_begins)
    with pytest.raises(ChiefReplaced):
        manager.restore_latest()
    for ours, before in zip(_values(theirs[0]), left, strict=True):
        np.testing.assert_array_equal(ours, before)


@pytest.mark.parametrize("job", ["", "a b", "../x", 3])
def test_mistakes(make: Make, job: Any) -> None:
    with raises(ConfigError, "job: received", remedy="expected"):
        make(job=job)


def test_mistakes_of_a_job() -> None:
    with raises(ConfigError, "name", received="'a b'", remedy="fresh: received 1"):
        tfps.Job("a b", fresh=1)  # type: ignore[arg-type]


def test_what_replaces_an_argument_is_named(make: Make) -> None:
    with raises(ConfigError, "recovery", received="fresh", remedy="job="):
        make(fresh=True, recovery="checkpoints")
    with raises(AttributeError, "'Recovery'", remedy="tfps.FaultTolerance"):
        tfps.Recovery  # noqa: B018
