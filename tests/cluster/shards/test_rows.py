"""Of a large table only the rows of a batch travel, and the numbers are those of one process."""

from __future__ import annotations

from collections.abc import Callable

import keras
import pytest
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import (
    BATCH,
    LABELS,
    LOCAL,
    assert_same,
    densify,
    fit,
)
from tests.unit.numbers.delayed_tables import assert_rows_lack_one_update
from tests.unit.numbers.large_tables import (
    IDS,
    OPTIMIZERS,
    assert_rows_travel_of_a_fit,
    small_tables,
)
from tests.unit.numbers.partitioned import PARTITIONERS, strategy_with
from tests.unit.numbers.tables import EXACT
from tfps.launch import LocalCluster

pytestmark = pytest.mark.timeout(240)


# Numbers alone: tests/unit/numbers/shards/test_rows.py; on a cluster, quicker: test_collection.py.
@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.parametrize(("name", "optimizer"), [("hash", "clipped"), (None, "adam")])
def test_one_process(
    name: str | None, optimizer: str, cluster: Callable[..., LocalCluster], carrier: str
) -> None:
    """Every pair is in ``tests/unit/numbers``."""
    partitioner = PARTITIONERS.get(name)  # type: ignore[arg-type]
    with strategy_with(cluster(workers=1, ps=2), partitioner) as strategy:
        assert_rows_travel_of_a_fit(strategy, OPTIMIZERS[optimizer])


@pytest.mark.slow
@pytest.mark.conformance
def test_pipelined_rows_lack_one_update(cluster: Callable[..., LocalCluster], carrier: str) -> None:
    mode = tfps.Asynchronous(pipeline_steps=1)
    with strategy_with(
        cluster(workers=1, ps=2), PARTITIONERS["hash"], consistency=mode
    ) as strategy:
        assert_rows_lack_one_update(strategy, EXACT["adagrad"])


@pytest.mark.slow
def test_synchronous_workers(cluster: Callable[..., LocalCluster]) -> None:
    options = {"consistency": tfps.Synchronous()}
    keras.utils.set_random_seed(1)
    running = cluster(workers=2, ps=2)
    with strategy_with(running, PARTITIONERS["hash"], **options) as strategy:
        with strategy.scope():
            model = small_tables()
        begin = model.get_weights()
        fit(model, IDS, LABELS)
        found = model.get_weights()
    with tf.device(LOCAL):
        local = small_tables()
    local.set_weights(begin)
    densify(local.optimizer)
    fit(local, IDS, LABELS, batch_size=2 * BATCH)
    assert_same(found, local.get_weights(), tolerance=5e-6)
