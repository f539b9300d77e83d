"""`ModelCheckpoint(save_freq=)` and `TerminateOnNaN`: at which step they act.

A file that is named after step 400 held the model of step 600, and training went on for hundreds of
steps after a loss that was not a number.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import keras
import numpy as np

import tfps
from tests.integration.reports.report import Report

STEPS, BATCH, EVERY, BAD_STEP = 600, 8, 100, 50
X = np.random.default_rng(0).random((STEPS * BATCH, 4)).astype("float32")
Y = X.sum(1, keepdims=True)

Scope = Callable[[], AbstractContextManager[object]]


def compiled() -> keras.Model:
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(64, "tanh"), keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    return model


def saved_steps(scope: Scope) -> dict[str, int]:
    """Return the updates of the model in each file of an epoch."""
    with scope():
        model = compiled()
    found, plain = {}, compiled()
    with tempfile.TemporaryDirectory() as folder:
        saving = keras.callbacks.ModelCheckpoint(
            folder + "/{batch}.weights.h5", save_freq=EVERY, save_weights_only=True
        )
        model.fit(X, Y, batch_size=BATCH, verbose=0, callbacks=[saving])
        for file in Path(folder).iterdir():
            plain.load_weights(file)
            found[file.name.split(".")[0]] = int(plain.optimizer.iterations.numpy())
    return dict(sorted(found.items()))


def steps_after_nan(scope: Scope) -> int:
    """Return how many steps followed the one whose loss is not a number."""
    with scope():
        model = compiled()
    bad = X.copy()
    bad[(BAD_STEP - 1) * BATCH :] = np.nan
    model.fit(
        bad,
        Y,
        batch_size=BATCH,
        shuffle=False,
        verbose=0,
        callbacks=[keras.callbacks.TerminateOnNaN()],
    )
    return int(model.optimizer.iterations.numpy()) - BAD_STEP


def compare(report: Report) -> None:
    expected = saved_steps(contextlib.nullcontext)
    for workers in (1, 2):
        with tfps.LocalCluster(workers=workers, ps=1) as cluster:
            strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
            got = saved_steps(strategy.scope)
            report.line(f"{workers} workers, save_freq={EVERY}", expected=expected, got=got)
            late, most = steps_after_nan(strategy.scope), workers - 1
            report.line(
                f"{workers} workers, TerminateOnNaN: steps afterwards",
                expected=f"at most {most}",
                got=late,
                equal=0 <= late <= most,
            )
            strategy.close()
