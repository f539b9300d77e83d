"""`Synchronous`: servers add up the rows of a round and no others; the numbers of one process."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import BATCH, LABELS, LOCAL, assert_same, densify, fit
from tests.unit.numbers.large_tables import TABLE_BYTES, small_tables
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tests.unit.numbers.tables import EXACT, IDS, tables_model
from tfps.testing import InProcessCluster

pytestmark = pytest.mark.timeout(240)

ROUNDS = tfps.Synchronous()


MODELS: dict[str, Callable[[], keras.Model]] = {
    "sgd": lambda: tables_model(EXACT["sgd"]),
    "adagrad": lambda: tables_model(EXACT["adagrad"]),
    "all of a table is updated": small_tables,
}


@pytest.mark.repeats
@pytest.mark.parametrize("servers", [1, 2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_two_workers_make_the_mean_of_their_rows(
    name: str, servers: int, cluster: Callable[..., InProcessCluster]
) -> None:
    """Rows of both, of one, and of neither; the last round has fewer examples of one of them."""
    make, count = MODELS[name], 2 * len(IDS) - BATCH // 2
    ids, labels = np.tile(IDS, (2, 1))[:count], np.tile(LABELS, 2)[:count]
    running = cluster(workers=2, ps=servers)
    with strategy_with(running, PARTITIONERS["shuffle"], consistency=ROUNDS) as strategy:
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = make()
        begin = model.get_weights()
        fit(model, ids, labels)
        found, stats = model.get_weights(), strategy.stats()
        sums = _sums(strategy)
        assert {size for _, size in sums} == {0}  # nothing is left of a round
        table_rows = {v.shape[0] for v in model.trainable_variables[:2]}
        assert all(shape.rank is None or shape[0] not in table_rows for shape, _ in sums)
    with tf.device(LOCAL):
        local = make()
    local.set_weights(begin)
    densify(local.optimizer)
    fit(local, ids, labels, batch_size=2 * BATCH)
    assert_same(found, local.get_weights(), tolerance=5e-6)
    assert stats.gradient_staleness_updates == {0: 2 * 2 * len(IDS) // BATCH}
    assert stats.bytes_pulled < TABLE_BYTES


def _sums(strategy: tfps.ParameterServerStrategy) -> list[tuple[tf.TensorShape, int]]:
    """The shape of each sum of rows on any server, and how many rows are in it."""
    return [
        (variable.shape, int(tf.shape(variable.read_value())[0]))
        for contents in strategy.runtime.contents
        for name, variable in contents.variables.items()
        if name.partition(".")[0].endswith(("/rows", "/places"))
    ]


@pytest.mark.rare
def test_a_backup_worker(cluster: Callable[..., InProcessCluster]) -> None:
    """Each round is the gradient of one worker; what comes late changes no row."""
    mode = tfps.Synchronous(backup_workers=1)
    running = cluster(workers=2, ps=2)
    with strategy_with(running, PARTITIONERS["shuffle"], consistency=mode) as strategy:
        with strategy.scope():
            model = tables_model(EXACT["adagrad"])
        history = fit(model, IDS, LABELS, epochs=6)
        assert history["loss"][-1] < history["loss"][0]
        stats = strategy.stats()
        assert int(model.optimizer.iterations.numpy()) == min(stats.versions)
        assert min(stats.versions) == max(stats.versions)
        assert {size for _, size in _sums(strategy)} == {0}
        absent = np.setdiff1d(np.arange(model.get_layer("own").input_dim), IDS)
        (table,) = model.get_layer("own").get_weights()
        fit(model, IDS, LABELS, epochs=1)
        np.testing.assert_array_equal(
            model.get_layer("own").get_weights()[0][absent], table[absent]
        )
