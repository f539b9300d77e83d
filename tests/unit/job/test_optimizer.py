"""The optimizer of a job file against the optimizers of Keras."""

from __future__ import annotations

import inspect

import keras
import pytest

from tests.messages import check_message
from tfps.config import OPTIMIZERS, parse
from tfps.config.schema import OWN_OPTIMIZERS
from tfps.errors import ConfigError
from tfps.job.optimizer import argument_problems, build_optimizer, optimizer_class, trial_problems
from tfps.optimizers import SparseUpdates, StalenessAware

# Wrappers around optimizers, which a name alone cannot describe.
NOT_OFFERED = {"lossscaleoptimizer", "multioptimizer", "optimizer"}


def training(**optimizer):
    return parse({"training": {"optimizer": optimizer}}).training


def test_all_optimizers_of_keras_are_offered():
    found = {
        name.lower()
        for name, value in vars(keras.optimizers).items()
        if inspect.isclass(value) and issubclass(value, keras.optimizers.Optimizer)
    }
    assert set(OPTIMIZERS) == found - NOT_OFFERED


@pytest.mark.parametrize("name", [*OPTIMIZERS, *OWN_OPTIMIZERS])
def test_every_optimizer_can_be_built(name):
    section = training(name=name, clipvalue=1.0)
    optimizer = build_optimizer(section, steps=10)
    assert isinstance(optimizer, optimizer_class(name))
    assert argument_problems(section.optimizer) == []
    assert trial_problems(section) == []


@pytest.mark.parametrize(
    ("arguments", "key", "reason"),
    [
        ({"name": "sgd", "momentum": 2}, "training.optimizer: SGD", "`momentum` must be "),
        ({"clipnorm": 1.0, "clipvalue": 1.0}, "training.optimizer: Adam", "Only one of `clipnorm`"),
        ({"name": "dana", "momentum": 2}, "training.optimizer.momentum", "received 2"),
        ({"name": "asyncadam", "beta_1": 1.0}, "training.optimizer.beta_1", "received 1.0"),
    ],
)
def test_what_an_optimizer_refuses_is_a_mistake_of_the_file(arguments, key, reason):
    with pytest.raises(ConfigError) as raised:
        build_optimizer(training(**arguments), steps=10)
    (problem,) = raised.value.problems
    check_message(problem, key, received=reason)


def test_updates_of_rows_alone_wrap_whatever_the_section_says():
    values = {"sparse_updates": True, "staleness": {"discount": "exponential"}}
    optimizer = build_optimizer(parse({"training": values}).training, steps=10)
    assert isinstance(optimizer, SparseUpdates)
    assert isinstance(optimizer.inner_optimizer, StalenessAware)
    with pytest.raises(ConfigError) as raised:
        build_optimizer(
            parse({"training": {"sparse_updates": True, "optimizer": {"name": "lamb"}}}).training,
            steps=10,
        )
    (problem,) = raised.value.problems
    check_message(problem, "training.sparse_updates", received="Lamb")


def test_what_keras_only_notices_in_a_step_is_found_by_one():
    (problem,) = trial_problems(training(beta_1="x"))
    check_message(problem, "training.optimizer: Adam", received="Cast string to float")


def test_arguments_reach_the_optimizer_and_the_rate_falls_to_zero():
    optimizer = build_optimizer(training(name="sgd", momentum=0.9, nesterov=True), steps=10)
    assert (optimizer.momentum, optimizer.nesterov) == (0.9, True)
    assert float(optimizer._learning_rate(0)) == pytest.approx(0.002)
    assert float(optimizer._learning_rate(10)) == pytest.approx(0.0, abs=1e-9)


def test_stale_gradients_are_discounted_where_the_file_says_so():
    staleness = {"discount": "exponential", "drop_above": 3}
    section = parse({"training": {"staleness": staleness}}).training
    optimizer = build_optimizer(section, steps=10)
    assert (repr(optimizer.discount), optimizer.drop_above) == ("Exponential(rate=0.1)", 3)
    assert isinstance(optimizer.inner_optimizer, keras.optimizers.Adam)


def test_our_own_optimizers_take_arguments_of_keras():
    dana = training(name="dana", momentum=0.8, weight_decay=0.1)
    assert argument_problems(dana.optimizer) == []
    assert build_optimizer(dana, steps=10).momentum == 0.8
    (problem,) = argument_problems(training(name="dana", nesterov=False).optimizer)
    check_message(problem, "training.optimizer.nesterov", received="DANA", remedy="momentum")
    adam = training(name="asyncadam", momentum="ordered", clipnorm=1.0)
    assert argument_problems(adam.optimizer) == []
    assert build_optimizer(adam, steps=10).momentum == "ordered"


def test_unknown_arguments_are_named_with_a_suggestion():
    (problem,) = argument_problems(training(name="adam", beta1=0.9).optimizer)
    check_message(problem, "training.optimizer.beta1", received="Adam", remedy="mean beta_1?")
