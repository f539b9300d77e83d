"""The strategy's methods on the chief, outside of scheduled functions."""

from __future__ import annotations

import pytest
import tensorflow as tf

import tfps
from tests.unit.upstream.conftest import MakeStrategy
from tests.unit.upstream.use_outside import warns_of_use_outside


def _run_on_the_chief(strategy: tfps.ParameterServerStrategy) -> tf.Tensor:
    with strategy.scope():
        one = tf.Variable(1, dtype=tf.int64)
    iterator = iter(tf.data.Dataset.range(5, 8))
    return strategy.run(lambda iterator: next(iterator) + one, args=(iterator,))


def test_run_warns(make_strategy: MakeStrategy, caplog: pytest.LogCaptureFixture) -> None:
    strategy = make_strategy()
    with warns_of_use_outside(caplog):
        assert int(_run_on_the_chief(strategy)) == 6


def test_run_does_not_warn_when_it_is_allowed(
    make_strategy: MakeStrategy, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = make_strategy()
    strategy.extended._allow_run_without_coordinator = True
    assert int(_run_on_the_chief(strategy)) == 6
    assert "ClusterCoordinator.schedule" not in caplog.text


def test_reduce_warns(make_strategy: MakeStrategy, caplog: pytest.LogCaptureFixture) -> None:
    strategy = make_strategy()
    with warns_of_use_outside(caplog):
        assert strategy.reduce("SUM", None, axis=None) is None


@pytest.mark.parametrize("way", ["dataset", "function"])
def test_a_distributed_dataset_cannot_be_iterated(way: str, make_strategy: MakeStrategy) -> None:
    strategy, dataset = make_strategy(), tf.data.Dataset.range(3)
    distributed = (
        strategy.experimental_distribute_dataset(dataset)
        if way == "dataset"
        else strategy.distribute_datasets_from_function(lambda _: dataset)
    )
    with pytest.raises(ValueError, match="create_per_worker_dataset"):
        iter(distributed)
