"""The planted log: the same everywhere, ids of a power law, and clicks whose best AUC is known."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

ROWS = [1000, 3, *[50] * 24]
EXAMPLES = 40_000


@pytest.fixture(scope="module")
def log(module: Any) -> Any:
    return module("click_log").ClickLog(seed=7, table_rows=ROWS, exponent=1.3)


@pytest.fixture(scope="module")
def drawn(log: Any) -> tuple[dict[str, np.ndarray], np.ndarray]:
    features, labels = log.examples(tf.range(EXAMPLES, dtype=tf.int64))
    return {name: value.numpy() for name, value in features.items()}, labels.numpy()


@pytest.mark.slow
def test_an_example_follows_from_its_position(log: Any, drawn: Any) -> None:
    features, labels = drawn
    positions = np.array([39_999, 5, 5, 17_000], np.int64)
    some, clicked = tf.function(log.examples)(tf.constant(positions))
    for name, value in some.items():
        np.testing.assert_array_equal(value, features[name][positions])
    np.testing.assert_array_equal(clicked, labels[positions])


def test_another_seed_and_another_position_are_another_example(module: Any, drawn: Any) -> None:
    features, _ = drawn
    assert len(np.unique(features["numbers"], axis=0)) == EXAMPLES
    other = module("click_log").ClickLog(seed=8, table_rows=ROWS, exponent=1.3)
    again, _ = other.examples(tf.range(1000, dtype=tf.int64))
    assert not (again["numbers"].numpy() == features["numbers"][:1000]).all(axis=1).any()
    assert (again["ids"].numpy() != features["ids"][:1000]).any(axis=1).all()


def test_ids_follow_the_power_law_up_to_the_last_row(drawn: Any) -> None:
    features, _ = drawn
    assert features["ids"].dtype == np.int32
    assert (features["ids"].max(axis=0) + 1 <= ROWS).all()
    for column, rows in ((0, 1000), (1, 3), (2, 50)):
        counts = np.bincount(features["ids"][:, column], minlength=rows)
        edges = np.arange(1, rows + 2) ** -0.3
        expected = EXAMPLES * (edges[:-1] - edges[1:]) / (1 - edges[-1])
        # A count of a Poisson distribution lies within five deviations.
        assert (np.abs(counts - expected) < 5 * np.sqrt(expected) + 5).all(), column


def test_labels_are_drawn_with_the_planted_probabilities(log: Any, drawn: Any) -> None:
    _, labels = drawn
    planted = log.probabilities(tf.range(EXAMPLES, dtype=tf.int64)).numpy()
    assert 0.2 < planted.mean() < 0.3
    for low in (0.0, 0.2, 0.5, 0.8):
        inside = (planted >= low) & (planted < low + 0.2)
        deviation = np.sqrt(0.25 / inside.sum())
        assert abs(labels[inside].mean() - planted[inside].mean()) < 5 * deviation


def test_hidden_weights_are_spread_as_the_logit_takes_them(log: Any) -> None:
    ids = tf.tile(tf.range(5000, dtype=tf.int64)[:, None], [1, 26])
    weights, factors = (hidden.numpy() for hidden in log.hidden(ids))
    for hidden in (weights, factors):
        assert np.abs(hidden.mean(axis=0)).max() < 0.07
        assert np.abs(hidden.std(axis=0) - 1).max() < 0.05
    between = np.corrcoef(np.concatenate([weights, factors], axis=1).T) - np.eye(52)
    assert np.abs(between).max() < 0.08


def test_the_best_auc_is_that_of_the_probabilities(module: Any, log: Any) -> None:
    test, best_auc = module("planted_inputs").TEST, module("best_auc").best_auc
    best = best_auc(log, examples=EXAMPLES)
    positions = test + tf.range(EXAMPLES, dtype=tf.int64)
    metric = keras.metrics.AUC(num_thresholds=2000)
    metric.update_state(log.examples(positions)[1], log.probabilities(positions))
    # The labels are one draw; the standard error of an AUC of EXAMPLES is 0.0026.
    assert abs(float(metric.result()) - best) < 4 * 0.0026
    assert 0.8 < best < 0.86


@pytest.mark.parametrize("seed", range(3))
def test_the_auc_of_probabilities_is_the_mean_over_all_pairs(module: Any, seed: int) -> None:
    random = np.random.default_rng(seed)
    p = random.choice([0.1, 0.25, 0.6, 0.9], size=60)
    right = np.where(p[:, None] > p, 1.0, np.where(p[:, None] == p, 0.5, 0.0))
    pairs = p[:, None] * (1 - p)
    # A pair of an example with itself counts as half right in both.
    expected = (right * pairs).sum() / pairs.sum()
    assert module("best_auc").auc_of_probabilities(p) == pytest.approx(expected)
