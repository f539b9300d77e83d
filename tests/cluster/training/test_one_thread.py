"""Each mode and kind of table gives on one thread the numbers that it gives on a thread pool.

The rule would leave some of these programs on the pool, so both executors are forced. On devices of
one process they cannot be: a closure has a part on the chief's device there, and on one thread each
of the two parts waits for the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.combinations import MODES, TABLES, Table
from tests.unit.numbers.comparison import BATCH
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tests.unit.numbers.ways import WAYS
from tfps.launch import LocalCluster
from tfps.runtime.worker.executor_choice import ExecutorChoice, GraphFacts
from tfps.runtime.worker.fit_loop import FitLoop

# Where TensorFlow fuses operations for the thread pool only; else they are equal to the bit. Adam
# divides small gradients by their size, so their differences become as large as those of others.
RELATIVE, ABSOLUTE = 1e-6, 1e-5
WITH_ROWS = ("asynchronous", "bounded", "synchronous")  # the modes in which rows travel
PROGRAMS = [
    *((mode, "no table", "adam") for mode in MODES),
    *((mode, "large table", "sgd") for mode in WITH_ROWS),
    *((mode, "collection", "adagrad") for mode in WITH_ROWS),
    ("asynchronous", "SparseUpdates", "adam"),
    ("asynchronous", "many layers", "adam"),
    *(("asynchronous", "no table", name) for name in TABLES["no table"].optimizers),
]

pytestmark = [pytest.mark.timeout(600), pytest.mark.repeats]


@dataclass(frozen=True)
class Always:
    """A rule that makes the same choice for every graph."""

    choice: ExecutorChoice

    def __call__(self, facts: GraphFacts) -> ExecutorChoice:
        return self.choice


@pytest.mark.parametrize(("mode", "table", "optimizer"), dict.fromkeys(PROGRAMS))
def test_numbers_on_one_thread(
    mode: str,
    table: str,
    optimizer: str,
    cluster: Callable[..., LocalCluster],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks, results = cluster(workers=1, ps=2), list[Any]()
    for is_one_thread in (False, True):
        choice = ExecutorChoice(is_one_thread, reason="this test")
        monkeypatch.setattr(f"{FitLoop.__module__}.choose_executor", Always(choice))
        # Each with a strategy of its own, whose first steps are those of a warm-up.
        with strategy_with(tasks, PARTITIONERS["shuffle"], consistency=MODES[mode]) as strategy:
            results.append(_train(strategy, TABLES[table], optimizer))
            kinds = ("train", "test", "predict")
            assert strategy.stats().executors == dict.fromkeys(kinds, str(choice))
    for on_pool, on_one_thread in zip(*results, strict=True):
        np.testing.assert_allclose(on_one_thread, on_pool, rtol=RELATIVE, atol=ABSOLUTE)


def _train(strategy: tfps.ParameterServerStrategy, table: Table, optimizer: str) -> list[Any]:
    """Fit, evaluate and predict; return all numbers, weights and the state of the optimizer."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = table.make(table.optimizers[optimizer])
    numbers = WAYS["fit, evaluate, predict"](model, table.data(BATCH), strategy)
    state = [variable.numpy() for variable in model.optimizer.variables]
    return [*tf.nest.flatten(numbers), *model.get_weights(), *state]
