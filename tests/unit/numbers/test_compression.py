"""Codecs of gradients within one process: bit by bit what they should be, and models that learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.unit.numbers.comparison import BATCH, LABELS, X, compiled, cross_entropy, densify
from tests.unit.numbers.tables import IDS, WIDTH, tables_model
from tfps.compression import ByPath, Cast, Delta, Identity, PushPull, Quantize, TopK
from tfps.optimizers import DANA, SparseUpdates
from tfps.strategy.reading.stats import Stats
from tfps.testing import InProcessCluster

Clusters = Callable[..., InProcessCluster]
Trained = tuple[list[np.ndarray], list[float], Stats]

pytestmark = pytest.mark.timeout(240)


def trained(
    cluster: Clusters,
    compression: Any,
    *,
    seed: int = 1,
    epochs: int = 2,
    workers: int = 1,
    optimizer: Any = None,
    **options: Any,
) -> Trained:
    """Weights, losses and counts of one worker, or more, with two servers."""
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=workers, ps=2).cluster_resolver,
        placement="round_robin",
        compression=compression,
        **options,
    )
    keras.utils.set_random_seed(seed)
    with strategy.scope():
        model = compiled(optimizer or keras.optimizers.Adam(0.02))
    losses = model.fit(X, LABELS, batch_size=BATCH, epochs=epochs, verbose=0).history["loss"]
    weights, stats = model.get_weights(), strategy.stats()
    strategy.close()
    return weights, losses, stats


@pytest.fixture(scope="module")
def plain(cluster: Clusters) -> Trained:
    """The training without compression."""
    return trained(cluster, None, epochs=15)


@pytest.mark.repeats
def test_identity_changes_no_bit(cluster: Clusters) -> None:
    expected, losses, before = trained(cluster, None)
    found, others, after = trained(cluster, ByPath({"hidden": Identity()}))
    assert [each.tobytes() for each in found] == [each.tobytes() for each in expected]
    assert others == losses
    assert after.bytes_pushed == before.bytes_pushed


@pytest.mark.repeats
def test_what_is_drawn_goes_by_seed_and_ticket(cluster: Clusters) -> None:
    """A ticket that is issued again is coded the same."""
    first, _, _ = trained(cluster, Quantize(2))
    again, _, _ = trained(cluster, Quantize(2))
    assert [each.tobytes() for each in again] == [each.tobytes() for each in first]


@pytest.mark.repeats
@pytest.mark.parametrize(
    ("codec", "times_fewer"), [(Cast("float16"), 1.5), (Quantize(8), 2), (TopK(0.1), 2)], ids=repr
)
def test_models_learn_with_fewer_bytes(
    cluster: Clusters, plain: Trained, codec: Any, times_fewer: float
) -> None:
    _, expected, before = plain
    _, losses, after = trained(cluster, codec, epochs=15)
    assert losses[-1] < 0.5 * losses[0]
    assert losses[-1] < expected[-1] + 0.15 * expected[0]
    coded = [c for each in after.traffic for c in each.codecs if c.codec != "none"]
    sent_bytes, plain_bytes = sum(c.sent_bytes for c in coded), sum(c.plain_bytes for c in coded)
    assert sent_bytes * times_fewer < plain_bytes
    # Moving averages and metrics go as they are.
    assert before.bytes_pushed - after.bytes_pushed == plain_bytes - sent_bytes
    assert after.updates_applied == before.updates_applied


@pytest.mark.repeats
def test_rows_of_tables_follow_the_bytes_of_a_codec(cluster: Clusters) -> None:
    """The tables learn as on one machine; weights whose gradients are coded stand still."""

    def optimizer() -> Any:
        still, moves = keras.optimizers.SGD(0.0), keras.optimizers.SGD(0.5)
        return keras.optimizers.MultiOptimizer(lambda v: moves if "embedd" in v.path else still)

    def seeded() -> keras.Model:
        keras.utils.set_random_seed(1)
        return tables_model(lambda: SparseUpdates(optimizer()))

    expected = seeded()
    expected.compile(optimizer(), cross_entropy())
    densify(expected.optimizer)
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2).cluster_resolver, compression=TopK(0.01)
    )
    with strategy.scope():
        model = seeded()
    for each in (expected, model):
        each.fit(IDS, LABELS, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    for one, other in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert strategy.stats().traffic[0].ratio > 1
    strategy.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode", [None, pytest.param(tfps.Synchronous(), marks=pytest.mark.repeats)], ids=repr
)
def test_rows_of_tables_are_coded_both_ways(cluster: Clusters, mode: Any) -> None:
    push, pull = Quantize(8), Cast("float16")
    weights, traffic = [], None
    for compression in (
        None,
        PushPull(push=ByPath({"embedding": push}), pull=ByPath({"embedding": pull})),
    ):
        strategy = tfps.ParameterServerStrategy(
            cluster(workers=1, ps=2).cluster_resolver, consistency=mode, compression=compression
        )
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = tables_model(lambda: SparseUpdates(keras.optimizers.SGD(0.5)))
        model.fit(IDS, LABELS, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
        weights.append(model.get_weights())
        traffic = strategy.stats().traffic
        strategy.close()
    for one, other in zip(*weights, strict=True):
        assert 0 < np.abs(one - other).max() < 0.05
    assert traffic is not None
    ratios = {
        each.codec: each.plain_bytes / each.sent_bytes
        for direction in traffic
        for each in direction.codecs
        if each.sent_bytes
    }
    assert ratios[repr(push)] == 4 * WIDTH / (4 + WIDTH)  # a scale, and a byte for each number
    assert ratios[repr(pull)] == 2


@pytest.mark.repeats
def test_tables_of_local_steps_are_coded_as_a_whole(cluster: Clusters) -> None:
    """Their rows do not travel by themselves; what a period has changed of them goes up."""
    found = []
    for compression in (None, PushPull(push=Quantize(8), pull=Quantize(8))):
        strategy = tfps.ParameterServerStrategy(
            cluster(workers=1, ps=2).cluster_resolver,
            consistency=tfps.LocalSteps(2),
            compression=compression,
        )
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = tables_model(lambda: keras.optimizers.SGD(0.5))
        model.fit(IDS, LABELS, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
        found.append((model.get_weights(), strategy.stats()))
        strategy.close()
    (weights, plain), (others, coded) = found
    for one, other in zip(weights, others, strict=True):
        assert 0 < np.abs(one - other).max() < 0.1
    assert 3 * coded.bytes_pushed < plain.bytes_pushed
    assert 1.5 * coded.bytes_pulled < plain.bytes_pulled


@pytest.mark.slow
@pytest.mark.parametrize(
    "codec",
    [
        ByPath({"hidden": Quantize(8)}, otherwise=TopK(0.1)),
        *(
            pytest.param(codec, marks=pytest.mark.repeats)
            for codec in (Cast("float16"), Quantize(1))
        ),
    ],
    ids=repr,
)
def test_half_precision_skips_a_step_that_is_not_finite(cluster: Clusters, codec: Any) -> None:
    x = X.copy()
    x[20, 3] = np.inf  # of the second batch
    strategy = tfps.ParameterServerStrategy(
        cluster(workers=1, ps=2).cluster_resolver, placement="round_robin", compression=codec
    )
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [
            keras.layers.Dense(16, "relu", name="hidden", dtype="mixed_float16"),
            keras.layers.Dense(3, name="head", dtype="mixed_float16"),
        ]
        model = keras.Sequential([keras.Input((8,)), *layers])
        optimizer = keras.optimizers.LossScaleOptimizer(
            keras.optimizers.SGD(0.1), initial_scale=1024.0
        )
        model.compile(optimizer, cross_entropy())
    before = model.get_weights()
    model.fit(x, LABELS, batch_size=BATCH, verbose=0, shuffle=False)
    assert float(optimizer.dynamic_scale.numpy()) == 512.0
    moved = [np.abs(new - old).max() for new, old in zip(model.get_weights(), before, strict=True)]
    assert np.isfinite(moved).all()
    assert min(moved) > 0
    strategy.close()


@pytest.mark.repeats
def test_shards_are_coded_by_server(cluster: Clusters) -> None:
    _, losses, _ = trained(
        cluster,
        ByPath({"hidden": Quantize(4), "head": TopK(0.2)}, minimum_bytes=32),
        epochs=10,
        variable_partitioner=tfps.partitioners.FixedShardsPartitioner(2),
    )
    assert losses[-1] < 0.6 * losses[0]


@pytest.mark.repeats
@pytest.mark.parametrize(
    "pull",
    [Cast("bfloat16"), ByPath({"hidden/kernel": Quantize(8)}, otherwise=Cast("float16"))],
    ids=repr,
)
def test_parameters_come_with_fewer_bytes(cluster: Clusters, plain: Trained, pull: Any) -> None:
    _, expected, before = plain
    weights, losses, after = trained(cluster, PushPull(push=Quantize(8), pull=pull), epochs=15)
    assert losses[-1] < 0.5 * losses[0]
    assert losses[-1] < expected[-1] + 0.15 * expected[0]
    assert after.bytes_pulled * 1.3 < before.bytes_pulled
    # The servers go on with whole numbers.
    assert not any(np.array_equal(w, w.astype("float16")) for w in weights)


@pytest.mark.quick("Quantize*")
@pytest.mark.parametrize("pull", [Quantize(8), Delta(Quantize(8))], ids=repr)
def test_momenta_of_workers_move_what_comes_with_fewer_bytes(cluster: Clusters, pull: Any) -> None:
    options: dict[str, Any] = {"epochs": 15, "workers": 2}
    _, losses, stats = trained(cluster, PushPull(pull=pull), optimizer=DANA(0.02), **options)
    assert losses[-1] < 0.5 * losses[0]
    coded = [c for each in stats.traffic for c in each.codecs if c.codec != "none"]
    assert sum(c.sent_bytes for c in coded) * 2 < sum(c.plain_bytes for c in coded)
