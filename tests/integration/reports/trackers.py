"""Trackers with batch hooks: every step is done, each hook is called once, and no speed is lost.

`WandbMetricsLogger`, `MlflowCallback`, `TqdmCallback` and a hook that prints made `fit` 20 to 40
times slower. The ratio to the steps per second without a callback is printed and not judged. A
package that is not installed is left out; `pip install --target FOLDER` and `PYTHONPATH` bring it.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tfps
from tests.integration.reports.report import Report

STEPS, BATCH, TURNS = 3000, 8, 2
X = np.random.default_rng(0).random((STEPS * BATCH, 4)).astype("float32")
Y = X.sum(1, keepdims=True)


class Prints(keras.callbacks.Callback):
    """Prints every 500th step, as users do."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch % 500 == 0:
            print(batch, logs)


def wandb(folder: Path) -> Any:
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=str(folder))
    module = importlib.import_module("wandb")
    module.init(project="report", dir=str(folder), settings={"_disable_stats": True})
    return importlib.import_module("wandb.integration.keras").WandbMetricsLogger()


def mlflow(folder: Path) -> Any:
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    importlib.import_module("mlflow").set_tracking_uri(f"file://{folder}/mlruns")
    return importlib.import_module("mlflow.keras").MlflowCallback()


def tensorboard(folder: Path) -> Any:
    return keras.callbacks.TensorBoard(folder / "logs")


def tqdm(folder: Path) -> Any:
    progress = importlib.import_module("tqdm.keras").TqdmCallback
    return progress(verbose=1, file=(folder / "progress.txt").open("w"))


def optuna(folder: Path) -> Any:
    trial = importlib.import_module("optuna").create_study().ask()
    return importlib.import_module("optuna_integration.keras").KerasPruningCallback(trial, "loss")


TRACKERS: dict[str, Callable[[Path], Any]] = {
    "wandb, offline": wandb,
    "MLflow, local files": mlflow,
    "TensorBoard": tensorboard,
    "TqdmCallback": tqdm,
    "Optuna": optuna,
    "a hook that prints": lambda folder: Prints(),
}


class Times(keras.callbacks.Callback):
    """Measures an epoch, without hooks for batches."""

    seconds = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.seconds = -time.monotonic()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seconds += time.monotonic()


def steps_per_s(model: keras.Model, *callbacks: Any) -> float:
    """Return the rate of an epoch; the times around it are of no interest."""
    times = Times()
    with contextlib.redirect_stdout(io.StringIO()):
        model.fit(X, Y, batch_size=BATCH, verbose=0, callbacks=[*callbacks, times])
    return STEPS / times.seconds


def compare(report: Report) -> None:
    with tfps.LocalCluster(workers=2, ps=1) as cluster:
        strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
        with strategy.scope():
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        steps_per_s(model)  # compiles, and connects
        for name, make in TRACKERS.items():
            before = int(model.optimizer.iterations.numpy())
            pairs = []
            try:
                # One folder for all turns: MLflow goes on to write into that of its first run.
                with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                    for _ in range(TURNS):
                        callback = make(Path(folder))
                        pairs.append((steps_per_s(model), steps_per_s(model, callback)))
            except ImportError as error:
                print(f"{name}: left out, {error}")
                continue
            alone, tracked = (max(rates) for rates in zip(*pairs, strict=True))
            report.line(
                f"{name}: {tracked:.0f} steps/s, alone {alone:.0f}, {tracked / alone:.2f}; updates",
                expected=2 * TURNS * STEPS,
                got=int(model.optimizer.iterations.numpy()) - before,
            )
        strategy.close()
