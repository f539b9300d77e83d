"""The reference job's data and model learn with every codec, and lose no more than it may cost."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.unit.numbers.comparison import cross_entropy
from tfps.compression import Cast, Identity, PushPull, Quantize, TopK
from tfps.config.bundle import find_example
from tfps.testing import InProcessCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EPOCHS, BATCH, TRAINED = 4, 64, 6000
PLAIN_ACCURACY = 0.79  # at least, of what goes as it is
# The most that a codec may cost of the accuracy: about twice the larger cost of seeds 1 and 2.
BOUNDS: dict[Any, float] = {
    Cast("bfloat16"): 0.01,
    Cast("float16"): 0.01,
    Quantize(8): 0.01,
    Quantize(4): 0.01,
    Quantize(2): 0.01,
    Quantize(1): 0.05,
    TopK(0.01): 0.03,
    PushPull(push=TopK(0.01), pull=Quantize(8)): 0.03,
    PushPull(pull=Cast()): 0.01,
}


def accuracy(compression: Any, *, seed: int = 1) -> float:
    """Train with one worker and two servers; return the accuracy on the test images."""
    data = find_example("fashion_mnist").module("data").load(source="subset")
    build = find_example("fashion_mnist").module("model").mlp
    order = np.random.default_rng(0).permutation(len(data.x_train))[:TRAINED]
    with InProcessCluster(workers=1, ps=2) as cluster:
        strategy = tfps.ParameterServerStrategy(
            cluster.cluster_resolver, placement="round_robin", compression=compression
        )
        keras.utils.set_random_seed(seed)
        with strategy.scope():
            model = build(hidden_units=(128, 64), dropout=0.0)
            steps = EPOCHS * -(-TRAINED // BATCH)
            rate = keras.optimizers.schedules.CosineDecay(0.01, steps)  # as the job has it
            optimizer = keras.optimizers.SGD(rate, momentum=0.9)
            model.compile(optimizer, cross_entropy(), metrics=["accuracy"])
        labels = data.y_train[order]
        model.fit(data.x_train[order], labels, batch_size=BATCH, epochs=EPOCHS, verbose=0)
        found = model.evaluate(data.x_test, data.y_test, batch_size=500, verbose=0)
        strategy.close()
    return float(found[1])


@pytest.fixture(scope="module")
def plain() -> float:
    return accuracy(None)


def test_it_learns(plain: float) -> None:
    assert plain > PLAIN_ACCURACY


@pytest.mark.parametrize("codec", BOUNDS, ids=repr)
def test_every_codec_stays_within_its_bound(codec: Any, plain: float) -> None:
    assert accuracy(codec) > plain - BOUNDS[codec]


def test_identity_is_no_codec(plain: float) -> None:
    assert accuracy(Identity()) == plain
