"""The training that the scripts of this folder share: data, model, batch, optimizer and report.

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
TABLES, IDS, TABLE_WIDTH = 26, 2_000, 8  # as many as a line of Criteo's click logs has ids
LARGE_ROWS = 3_200_000  # of each table: 2.7 GB of all together
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
    effects = np.random.default_rng(0).normal(size=(TABLES, IDS))

    def rows(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng(seed)
        ids = random.zipf(1.6, size=(count, TABLES)).clip(1, IDS).astype("int32") - 1
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


def tables(keras: Any, rows: int) -> list[Any]:
    """Return a table with this number of rows for each column of ids."""
    return [keras.layers.Embedding(rows, TABLE_WIDTH) for _ in range(TABLES)]


def behind_tables(keras: Any, classes: int) -> Any:
    """Wide and deep: the rows of all tables go to a sum, and through layers."""
    rows = keras.Input((TABLES * TABLE_WIDTH,))
    hidden = keras.layers.Dense(64, activation="relu")(rows)
    hidden = keras.layers.Dense(32, activation="relu")(hidden)
    wide = keras.layers.Dense(classes, use_bias=False)(rows)
    return keras.Model(rows, keras.layers.Add()([wide, keras.layers.Dense(classes)(hidden)]))


@dataclass(frozen=True)
class Kind:
    """The examples and the optimizer with which a model is trained."""

    examples: Callable[[int], Examples]
    rows: int = 0  # of a table; 0: it has none
    optimizer: str = "Adam"
    learning_rate: float = 1e-3
    is_tested: bool = True  # in a model without a strategy, which has to fit a process


KINDS = {
    "dense": Kind(images),
    "mixed": Kind(clicks, IDS),
    # Without slots, so that every strategy that can hold the tables trains them by rows.
    "large": Kind(clicks, LARGE_ROWS, "SGD", 0.1, is_tested=False),
}


@dataclass
class Clock:
    """How long each epoch took, and how good the weights were then; the first one traces."""

    begun_s: float = 0.0
    epochs_s: list[float] = field(default_factory=list)
    ends_at: list[float] = field(default_factory=list)  # of the clock that other processes have
    accuracies: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Job:
    """The numbers that a script's arguments may change, and what follows from them."""

    model: str = "dense"  # mixed: 26 tables and layers behind them; large: of many more rows
    workers: int = 2
    epochs: int = 3
    examples: int = 10_000  # of each epoch
    seed: int = 1
    table_rows: int = 0  # 0: as the model has them
    report_file: Path | None = None
    steps_folder: Path | None = None
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
        parser.add_argument("--table-rows", type=int, default=0, help="instead of its own")
        parser.add_argument("--report-file", type=Path, help="for numbers, as JSON")
        parser.add_argument("--steps-folder", type=Path, help="for steps, which wait 50 ms")
        parser.add_argument("--mode", choices=modes, default=modes[0])
        return cls(**vars(parser.parse_args()))

    @property
    def kind(self) -> Kind:
        return KINDS[self.model]

    @cached_property
    def data(self) -> Examples:
        """An epoch of examples, and those to test with."""
        found = self.kind.examples(self.seed)
        taken = np.arange(self.examples) % len(found.x_train)
        train, test = found.x_train[taken], found.x_test
        if self.kind.rows:  # ids lie apart in tables that have more rows
            apart = self.rows // IDS
            train, test = apart * train, apart * test
        return Examples(train, found.y_train[taken], test, found.y_test, found.classes)

    @property
    def rows(self) -> int:
        """The number of rows of each table."""
        return self.table_rows or self.kind.rows

    def first_layers(self, keras: Any) -> list[Any]:
        """Return the layers before the model's own: one that makes steps wait, or none."""
        if self.steps_folder is None:
            return []
        from slow_steps import slow_layer

        return [slow_layer(keras, self.steps_folder)]

    def build(self, keras: Any, *, is_slow: bool = True) -> Any:
        """The model, whose first weights depend on the seed alone."""
        keras.utils.set_random_seed(self.seed)
        first = self.first_layers(keras) if is_slow else []
        classes = self.data.classes
        if not self.kind.rows:
            image = keras.Input((28, 28, 1), dtype="uint8")
            return keras.Sequential([image, *first, *dense_layers(keras, classes)])
        ids = given = keras.Input((TABLES,), dtype="int32")
        for layer in first:
            ids = layer(ids)
        rows = [table(ids[:, column]) for column, table in enumerate(tables(keras, self.rows))]
        return keras.Model(given, behind_tables(keras, classes)(keras.layers.Concatenate()(rows)))

    def optimizer(self, keras: Any) -> Any:
        return getattr(keras.optimizers, self.kind.optimizer)(self.kind.learning_rate)

    def loss(self, keras: Any) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def callback(self, keras: Any) -> Any:
        """A callback for `fit` that calls `begin` and `end`."""
        job = self

        class Epochs(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                job.begin()

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                job.end(keras, self.model.get_weights)

        return Epochs()

    def begin(self) -> None:
        """Begin an epoch."""
        self.clock.begun_s = time.time()

    def end(self, keras: Any, weights: Callable[[], Sequence[Any]]) -> None:
        """End it; the weights are tested while the clock stands."""
        now = time.time()
        self.clock.epochs_s.append(now - self.clock.begun_s)
        self.clock.ends_at.append(now)
        if self.kind.is_tested and self.steps_folder is None:
            self.clock.accuracies.append(self.accuracy(keras, weights()))

    def accuracy(self, keras: Any, weights: Sequence[Any]) -> float:
        """How good weights are, in a model without any strategy."""
        plain = self.build(keras, is_slow=False)
        plain.set_weights(weights)
        parts = range(0, len(self.data.x_test), EVALUATION_BATCH)
        chosen = [
            np.argmax(plain(self.data.x_test[k : k + EVALUATION_BATCH], training=False), axis=1)
            for k in parts
        ]
        return float(np.mean(np.concatenate(chosen) == self.data.y_test))

    def report(self) -> None:
        """Say how fast it was, and how good the weights are."""
        clock = self.clock
        numbers = {
            "examples": self.examples,
            "epochs_s": clock.epochs_s,
            "ends_at": clock.ends_at,
            "accuracies": clock.accuracies,
        }
        tested = [f"test accuracy {accuracy:.3f}" for accuracy in clock.accuracies[-1:]]
        rates = [self.examples / seconds for seconds in clock.epochs_s[1:]]
        rate = f"{np.median(rates):,.0f} examples/s" if rates else "one epoch: no rate"
        print(", ".join([*tested, rate]), flush=True)
        if self.report_file is not None:
            self.report_file.write_text(json.dumps(numbers))
