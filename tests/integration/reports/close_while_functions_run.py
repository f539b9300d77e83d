"""`strategy.close()` while scheduled functions run, then a new strategy on the same cluster.

An error or Ctrl-C before `join`, or a cell of a notebook that is run again: what runs ends quietly,
and the next strategy works.
"""

from __future__ import annotations

import io
import logging
import os

import keras
import tensorflow as tf

import tfps
from tests.integration.reports.report import Report

TURNS = int(os.environ.get("TURNS", "6"))  # on each transport
ALARMS = ("TFPS_JOB_SECRET", "failed with", "encountered the following error", "lost")


def run_turn(cluster: tfps.LocalCluster, *, functions: int, transport: str) -> None:
    """Schedule functions on a new strategy, and close it before they have ended."""
    strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver, transport=transport)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
    coordinator = tfps.ClusterCoordinator(strategy)

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(tf.ones((8, 4))) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    try:
        for _ in range(functions):
            coordinator.schedule(step)
        raise ValueError("a mistake of the program, before join()")
    except ValueError:
        strategy.close()


def compare(report: Report) -> None:
    """Make one strategy after the other, and read what is logged meanwhile."""
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    loggers = [tf.get_logger(), logging.getLogger("tfps")]
    for logger in loggers:
        logger.addHandler(handler)
    with tfps.LocalCluster(workers=2, ps=1) as cluster:
        for transport in ("direct", "grpc"):
            outcomes = []
            for number in range(TURNS):
                log.seek(0)
                log.truncate()
                try:
                    run_turn(cluster, functions=1 + number % 3, transport=transport)
                    outcome = "worked"
                except Exception as error:  # noqa: BLE001 - it is what is compared
                    outcome = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
                if any(alarm in log.getvalue() for alarm in ALARMS):
                    outcome += ", with an alarm in the log"
                outcomes.append(outcome)
            report.line(
                f"{TURNS} strategies, {transport}", expected=["worked"], got=sorted(set(outcomes))
            )
    for logger in loggers:
        logger.removeHandler(handler)
