"""A job with a name outlives its chief: the next strategy of that name goes on with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tfps.errors import ChiefReplaced, ConfigError
from tfps.strategy import named_job
from tfps.testing import OneProcess

X = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
Y = X.sum(1, keepdims=True)
STEPS = 4

Make = Callable[..., tfps.ParameterServerStrategy]


def _model(*, width: int = 3) -> keras.Model:
    """With names of its own: Keras counts the models of a process."""
    first, second = keras.layers.Dense(width, name="first"), keras.layers.Dense(1, name="second")
    model = keras.Sequential([keras.Input((4,)), first, second], name="model")
    model.compile(keras.optimizers.Adam(0.01, name="adam"), "mse")
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
    with OneProcess(workers=1, ps=2) as cluster:

        def make_one(**options: Any) -> tfps.ParameterServerStrategy:
            named_job._OPEN.clear()
            options = {"job": "night", "placement": "round_robin", **options}
            made.append(tfps.ParameterServerStrategy(cluster.cluster_resolver, **options))
            return made[-1]

        yield make_one
        for strategy in made:
            strategy.close()


@pytest.mark.parametrize("mode", [tfps.Asynchronous(), tfps.BoundedStaleness(1)], ids=str)
def test_training_goes_on_as_if_nothing_had_happened(make: Make, mode: Any) -> None:
    """Weights, slots, iterations and counts; the numbers are those of one chief."""
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
    # One chief that does both.
    keras.utils.set_random_seed(1)
    reference = _model_on(make(job="other", consistency=mode))
    reference.set_weights(begun)
    _fit(reference)
    _fit(reference)
    for ours, theirs in zip(_values(model), _values(reference), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_an_older_chief_is_refused(make: Make) -> None:
    old = make()
    model = _model_on(old)
    _fit(model)
    new = make()
    with pytest.raises(ChiefReplaced, match="another chief goes on with this job"):
        _fit(model)
    theirs = _model_on(new)
    _fit(theirs)
    assert int(theirs.optimizer.iterations) == 2 * STEPS


def test_close_and_fresh_end_the_job(make: Make) -> None:
    strategy = make()
    model = _model_on(strategy)
    _fit(model)
    strategy.close()
    again = make()
    model = _model_on(again)
    _fit(model)
    assert again.stats().updates_applied == STEPS
    discarded = make(fresh=True)
    model = _model_on(discarded, width=5)
    _fit(model)
    assert discarded.stats().updates_applied == STEPS
    assert int(model.optimizer.iterations) == STEPS


def test_another_model_is_refused_and_nothing_changes(make: Make) -> None:
    model = _model_on(make())
    _fit(model)
    left = _values(model)
    with pytest.raises(ConfigError, match=r"hold variables/.*kernel as float32 \(4, 3\).*\(4, 5\)"):
        _model_on(make(), width=5)
    with pytest.raises(ConfigError, match=r"consistency: the job has Asynchronous.*fresh=True"):
        make(consistency=tfps.Synchronous())
    model = _model_on(make())
    model.optimizer.build(model.trainable_variables)
    for ours, theirs in zip(_values(model), left, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_one_strategy_of_a_process_has_the_job(make: Make) -> None:
    strategy = make()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(named_job._OPEN, "clear", lambda: None)
        with pytest.raises(ConfigError, match="'night' is in use by another strategy"):
            make()
        strategy.close()
        make()


@pytest.mark.parametrize("job", ["", "a b", "../x", 3])
def test_mistakes(make: Make, job: Any) -> None:
    with pytest.raises(ConfigError, match="job: received"):
        make(job=job, fresh=1)
