"""A model that was made outside of the scope: what works is said once, what cannot is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

import tfps
from tests.messages import check_message, raises
from tests.unit.numbers.comparison import LABELS, X, cross_entropy, fit
from tfps.errors import UnsupportedError
from tfps.training.worker_use import WorkerUse

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def work(strategy: tfps.ParameterServerStrategy, monkeypatch: pytest.MonkeyPatch) -> WorkerUse:
    """The work of one strategy's workers: none so far."""
    work = WorkerUse()
    work.expect(strategy.runtime)
    monkeypatch.setattr("tfps.training.trainer.WORKER_USE", work)
    return work


@pytest.fixture
def warnings_of(caplog: pytest.LogCaptureFixture) -> Callable[[Callable[[], Any]], list[str]]:
    def of(use: Callable[[], Any]) -> list[str]:
        caplog.clear()
        use()
        return [r.getMessage() for r in caplog.records if r.name == "tfps.training.trainer"]

    return of


Warned = Callable[[Callable[[], Any]], list[str]]


def _model_outside(*, is_built: bool = True) -> keras.Model:
    inputs = [keras.Input((8,))] if is_built else []
    model = keras.Sequential([*inputs, keras.layers.Dense(3)], name="stranger")
    model.compile("sgd", cross_entropy())
    return model


@pytest.mark.quick("True")
@pytest.mark.parametrize("is_built", [True, False])
def test_model_from_outside_the_scope_warns_once(
    is_built: bool, work: WorkerUse, warnings_of: Warned
) -> None:
    model = _model_outside(is_built=is_built)
    [warning] = warnings_of(lambda: fit(model))
    check_message(warning, "the model stranger", remedy="`with strategy.scope():`")
    assert warnings_of(lambda: (fit(model), model.evaluate(X, LABELS, verbose=0))) == []
    assert len(warnings_of(lambda: fit(_model_outside()))) == 1, "each model once"


@pytest.mark.repeats
def test_an_evaluation_warns_as_well(work: WorkerUse, warnings_of: Warned) -> None:
    model = _model_outside()
    work.begin()  # whatever the workers have had to do before
    [warning] = warnings_of(lambda: model.evaluate(X, LABELS, verbose=0))
    check_message(warning, "stranger", received="evaluate", remedy="`with strategy.scope():`")
    assert warnings_of(lambda: model.evaluate(X, LABELS, verbose=0)) == []


@pytest.mark.rare
def test_other_models_from_outside_the_scope_do_not_warn(
    work: WorkerUse, warnings_of: Warned, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        model = _model_outside()
    assert warnings_of(lambda: fit(model)) == [], "another strategy's"
    assert warnings_of(lambda: _model_outside().predict(X, verbose=0)) == []
    monkeypatch.setattr("tfps.training.trainer.WORKER_USE", WorkerUse())
    assert warnings_of(lambda: fit(_model_outside())) == [], "no strategy is open"


def _in_scope(strategy: tfps.ParameterServerStrategy) -> keras.Model:
    with strategy.scope():
        return _model_outside()


def _schedule(strategy: tfps.ParameterServerStrategy) -> None:
    strategy.coordinator.schedule(tf.function(lambda: tf.constant(1)))
    strategy.coordinator.join()


USES: dict[str, Callable[[tfps.ParameterServerStrategy], Any]] = {
    "fit": lambda strategy: fit(_in_scope(strategy)),
    "evaluate": lambda strategy: _in_scope(strategy).evaluate(X, LABELS, verbose=0),
    "predict": lambda strategy: _in_scope(strategy).predict(X, batch_size=1, verbose=0),
    "schedule": _schedule,
}


@pytest.mark.repeats
@pytest.mark.parametrize("use", USES)
def test_what_runs_on_workers(
    use: str, strategy: tfps.ParameterServerStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = WorkerUse()
    work.expect(strategy.runtime)
    monkeypatch.setattr("tfps.strategy.parameter_server.WORKER_USE", work)
    _in_scope(strategy).predict(X[:2], verbose=0)
    assert work.is_missing, "a small prediction is the chief's"
    USES[use](strategy)
    assert not work.is_missing


@pytest.mark.quick("True")
@pytest.mark.parametrize("is_built", [True, False])
def test_model_from_outside_the_scope_is_refused(
    is_built: bool, strategy: tfps.ParameterServerStrategy
) -> None:
    model = _model_outside(is_built=is_built)
    remedy = "inside `with strategy.scope():`"
    with strategy.scope(), raises(UnsupportedError, "stranger: ", remedy=remedy):
        fit(model)
    with strategy.scope():
        model.compile("sgd", cross_entropy())
    with raises(UnsupportedError, "stranger: ", remedy=remedy):
        fit(model)


@pytest.mark.rare
def test_a_scope_that_clear_session_ended_is_refused(
    strategy: tfps.ParameterServerStrategy,
) -> None:
    """The next scope, and a model in it, are as usual."""
    with raises(UnsupportedError, "strategy.scope()", received="clear_session()"), strategy.scope():
        keras.backend.clear_session()
        _model_outside()
    with strategy.scope():
        model = _model_outside()
    assert not tf.distribute.has_strategy()
    fit(model)
    assert strategy.stats().updates_applied > 0
