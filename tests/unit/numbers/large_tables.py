"""Tables of which only the rows of a batch travel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.unit.numbers.comparison import BATCH as FIT_BATCH
from tests.unit.numbers.comparison import LABELS, LOCAL, Comparison, assert_same, densify, fit
from tests.unit.numbers.tables import tables_model
from tfps.runtime.program.tables import LEAST_TABLE_BYTES

ROWS, WIDTH = 20_000, 16
TABLE_BYTES = 4 * ROWS * WIDTH
STEPS, BATCH = 6, 16  # of a loop of one's own
IDS = np.random.default_rng(5).integers(0, ROWS, size=(64, 5))
IDS[:, 1] = IDS[:, 0]  # the same row twice in an example
IDS[3:40, 2] = 7  # and one in many
IDS[0, 3], IDS[1, 3] = 0, ROWS - 1
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.5),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "clipped": lambda: keras.optimizers.Adam(0.01, clipnorm=0.05),
    "clipped together": lambda: keras.optimizers.SGD(0.5, global_clipnorm=0.05),
    "scaled loss": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01)),
}
MODES: dict[str, Any] = {
    "asynchronous": tfps.Asynchronous(),
    "bounded": tfps.BoundedStaleness(1),
    "synchronous": tfps.Synchronous(),
    "local": tfps.LocalSteps(2),
}
MODES_BY_ROWS = ("asynchronous", "bounded")


def small_tables(optimizer: Callable[[], Any] = OPTIMIZERS["adam"]) -> keras.Model:
    """Two tables, one of them looked up twice."""
    assert TABLE_BYTES >= LEAST_TABLE_BYTES
    return tables_model(optimizer, rows=ROWS, width=WIDTH)


def step_of(model: keras.Model, calls: int) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """A step of a custom loop, with `calls` calls of the optimizer."""

    def step(ids: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        loss = tf.constant(0.0)
        for _ in range(calls):  # the second computes from what the first has changed
            with tf.GradientTape() as tape:
                loss = model.compute_loss(ids, labels, model(ids, training=True))
            variables = model.trainable_variables
            model.optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    return step


def batches() -> list[tuple[tf.Tensor, tf.Tensor]]:
    """The batches of the steps, in order."""
    places = [np.arange(k * BATCH, (k + 1) * BATCH) % len(IDS) for k in range(STEPS)]
    with tf.device(LOCAL):
        return [(tf.constant(IDS[rows]), tf.constant(LABELS[rows])) for rows in places]


def trained_alone(
    weights: list[np.ndarray], optimizer: Callable[[], Any], *, calls: int
) -> tuple[list[float], list[np.ndarray]]:
    """Train in one process; return the losses and the weights."""
    with tf.device(LOCAL):
        model = small_tables(optimizer)
        model.set_weights(weights)
        densify(model.optimizer)
        step = step_of(model, calls)
        losses = [float(step(*batch)) for batch in batches()]
    return losses, model.get_weights()


def assert_rows_travel_of_a_fit(
    strategy: tfps.ParameterServerStrategy, optimizer: Callable[[], Any]
) -> None:
    """Train, evaluate and predict as one process does, with few bytes."""

    def use(model: keras.Model) -> dict[str, Any]:
        history = fit(model, IDS, LABELS, validation_data=(IDS, LABELS))
        evaluated = model.evaluate(IDS, LABELS, batch_size=FIT_BATCH, verbose=0)
        on_workers = model.predict(IDS, batch_size=FIT_BATCH, verbose=0)
        on_the_chief = model.predict(IDS, verbose=0)  # of two batches
        return {
            **history,
            "evaluated": evaluated,
            "predicted": on_workers,
            "predicted on the chief": on_the_chief,
        }

    Comparison(strategy).run(lambda: small_tables(optimizer), use)
    stats = strategy.stats()
    assert stats.fallback_steps == 0
    # Two epochs of four steps with two evaluations each, one more, and a prediction; a table is
    # 1.3 MB.
    assert stats.bytes_pulled < 2 * TABLE_BYTES
    assert stats.bytes_pushed < TABLE_BYTES


def assert_scheduled_steps_are_those_of_one_process(
    strategy: tfps.ParameterServerStrategy,
    optimizer: Callable[[], Any],
    *,
    calls: int,
    by_rows: bool,
) -> None:
    """Train in a loop of one's own as one process does, with few bytes where rows travel."""
    coordinator = tfps.ClusterCoordinator(strategy)
    with strategy.scope():
        model = small_tables(optimizer)
    begin = model.get_weights()
    step = tf.function(step_of(model, calls))
    before = strategy.stats()
    losses = [float(coordinator.schedule(step, args=b).fetch()) for b in batches()]
    after = strategy.stats()
    assert after.fallback_steps == 0
    expected, weights = trained_alone(begin, optimizer, calls=calls)
    np.testing.assert_allclose(losses, expected, atol=1e-5)
    assert_same(model.get_weights(), weights, tolerance=2e-5)
    moved = after.bytes_pulled - before.bytes_pulled, after.bytes_pushed - before.bytes_pushed
    if by_rows:
        assert max(moved) < TABLE_BYTES
    else:
        assert min(moved) > STEPS * TABLE_BYTES
