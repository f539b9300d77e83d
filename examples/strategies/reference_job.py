"""What each script of this folder trains: the same data, model, batch, optimizer and report.

What depends on the flavour of Keras takes `keras` or `tf_keras`, so that a script decides.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

# The images lie in another example, one folder up.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

BATCH_SIZE = 64  # of one worker's step
LEARNING_RATE = 1e-3  # of Adam
TABLES, TABLE_ROWS, TABLE_WIDTH = 26, 2_000, 8  # as many as a line of Criteo's click logs has ids
EVALUATION_BATCH = 500


@dataclass(frozen=True)
class Examples:
    """One array of inputs and one of labels, to train on and to test with."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int


def images(seed: int) -> Examples:
    """The subset of Fashion-MNIST that ships with tfps."""
    from fashion_mnist import data

    found = data.load(source="subset")
    order = np.random.default_rng(seed).permutation(len(found.x_train))
    labels = (found.y_train[order].astype("int32"), found.y_test.astype("int32"))
    return Examples(found.x_train[order], labels[0], found.x_test, labels[1], classes=10)


def clicks(seed: int) -> Examples:
    """Rows of 26 ids, and a click on the half of them whose ids have the most appeal."""
    effects = np.random.default_rng(0).normal(size=(TABLES, TABLE_ROWS))

    def rows(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng(seed)
        ids = random.zipf(1.6, size=(count, TABLES)).clip(1, TABLE_ROWS).astype("int32") - 1
        scores = effects[np.arange(TABLES), ids].sum(axis=1)
        return ids, (scores > np.median(scores)).astype("int32")

    return Examples(*rows(20_000, 1 + seed), *rows(2_000, 0), classes=2)


def dense_layers(keras: Any, classes: int) -> list[Any]:
    """The convolutional network of the reference job, as the layers behind its input."""
    halved = {"strides": 2, "padding": "same", "activation": "relu"}
    return [
        keras.layers.Rescaling(1 / 255),
        keras.layers.Conv2D(32, 3, **halved),
        keras.layers.Conv2D(64, 3, **halved),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dropout(0.25),
        keras.layers.Dense(classes),
    ]


def tables(keras: Any) -> list[Any]:
    """A table for each column of ids."""
    return [keras.layers.Embedding(TABLE_ROWS, TABLE_WIDTH) for _ in range(TABLES)]


def behind_tables(keras: Any, classes: int) -> Any:
    """Wide and deep: the rows of all tables go to a sum, and through layers."""
    rows = keras.Input((TABLES * TABLE_WIDTH,))
    hidden = keras.layers.Dense(64, activation="relu")(rows)
    hidden = keras.layers.Dense(32, activation="relu")(hidden)
    wide = keras.layers.Dense(classes, use_bias=False)(rows)
    return keras.Model(rows, keras.layers.Add()([wide, keras.layers.Dense(classes)(hidden)]))


def dense_model(keras: Any, classes: int) -> Any:
    return keras.Sequential(
        [keras.Input((28, 28, 1), dtype="uint8"), *dense_layers(keras, classes)]
    )


def mixed_model(keras: Any, classes: int) -> Any:
    ids = keras.Input((TABLES,), dtype="int32")
    rows = [table(ids[:, column]) for column, table in enumerate(tables(keras))]
    return keras.Model(ids, behind_tables(keras, classes)(keras.layers.Concatenate()(rows)))


KINDS: dict[str, tuple[Callable[[int], Examples], Callable[[Any, int], Any]]] = {
    "dense": (images, dense_model),
    "mixed": (clicks, mixed_model),
}


@dataclass
class Clock:
    """When each epoch began and ended; the first one traces the model, and is not counted."""

    begun_s: float = field(default_factory=time.perf_counter)
    epochs_s: list[float] = field(default_factory=list)

    def begin(self) -> None:
        self.begun_s = time.perf_counter()

    def end(self) -> None:
        self.epochs_s.append(time.perf_counter() - self.begun_s)

    def callback(self, keras: Any) -> Any:
        """A callback for `fit` that calls both."""
        return keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda *_: self.begin(),
            on_epoch_end=lambda *_: self.end(),
        )


@dataclass(frozen=True)
class Job:
    """The numbers that a script's arguments may change, and what follows from them."""

    model: str = "dense"  # or mixed: 26 tables, and layers behind them
    workers: int = 2
    epochs: int = 3
    examples: int = 10_000  # of each epoch
    seed: int = 1
    report_file: Path | None = None
    mode: str = ""  # of scripts that have several
    clock: Clock = field(default_factory=Clock)

    @classmethod
    def from_arguments(
        cls, *, modes: Sequence[str] = ("",), models: Sequence[str] = tuple(KINDS)
    ) -> Job:
        """Read the command line of the script; the first mode and model are those by default."""
        parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
        parser.add_argument("--model", choices=models, default=models[0])
        for name in ("workers", "epochs", "examples", "seed"):
            parser.add_argument(f"--{name}", type=int, default=getattr(cls, name))
        parser.add_argument("--report-file", type=Path, help="for numbers, as JSON")
        parser.add_argument("--mode", choices=modes, default=modes[0])
        return cls(**vars(parser.parse_args()))

    @cached_property
    def data(self) -> Examples:
        """An epoch of examples, and those to test with."""
        found = KINDS[self.model][0](self.seed)
        taken = np.arange(self.examples) % len(found.x_train)
        train = found.x_train[taken], found.y_train[taken]
        return Examples(*train, found.x_test, found.y_test, found.classes)

    def build(self, keras: Any) -> Any:
        """The model, whose first weights depend on the seed alone."""
        keras.utils.set_random_seed(self.seed)
        return KINDS[self.model][1](keras, self.data.classes)

    def optimizer(self, keras: Any) -> Any:
        return keras.optimizers.Adam(LEARNING_RATE)

    def loss(self, keras: Any) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def report(self, keras: Any, weights: Sequence[Any]) -> None:
        """Say how fast it was and how good the weights are, in a model without any strategy."""
        plain = self.build(keras)
        plain.set_weights(weights)
        parts = range(0, len(self.data.x_test), EVALUATION_BATCH)
        chosen = [
            np.argmax(plain(self.data.x_test[k : k + EVALUATION_BATCH], training=False), axis=1)
            for k in parts
        ]
        numbers = {
            "accuracy": float(np.mean(np.concatenate(chosen) == self.data.y_test)),
            "examples": self.examples,
            "epochs_s": self.clock.epochs_s,
        }
        rates = [self.examples / seconds for seconds in self.clock.epochs_s[1:]]
        rate = f"{np.median(rates):,.0f} examples/s" if rates else "one epoch: no rate"
        print(f"test accuracy {numbers['accuracy']:.3f}, {rate}", flush=True)
        if self.report_file is not None:
            self.report_file.write_text(json.dumps(numbers))
