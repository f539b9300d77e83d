"""Small programs for the calls of `classes.toml`, compared under a strategy and without."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tfps
from tests.unit.numbers.comparison import LABELS, Comparison, X, cross_entropy, fit
from tests.unit.numbers.keras import callback_effects
from tfps.tested_versions import parse_minor

FILE = Path(__file__).with_name("classes.toml")
MODULES = ("callbacks", "layers", "losses", "metrics")
EXAMPLES = len(X)
_random = np.random.default_rng(2)
Program = tuple[Callable[[], keras.Model], Callable[[keras.Model], dict[str, Any]]]


@dataclass(frozen=True)
class Call:
    """A call that makes a layer, a loss, a metric or a callback.

    Args:
        module: of Keras.
        kind: of the data that it is for.
        text: in Python, with the names of the module.
    """

    module: str
    kind: str
    text: str

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """The classes of the module that it makes."""
        used = {node.id for node in ast.walk(ast.parse(self.text)) if isinstance(node, ast.Name)}
        return frozenset(name for name in used if name[0].isupper())

    def make(self, **values: Any) -> Any:
        """Return the object; ``values`` are what the call may name besides."""
        module = getattr(keras, self.module)
        return eval(self.text, {**vars(module), **values, "keras": keras})


def _read() -> dict[str, dict[str, Any]]:
    return tomllib.loads(FILE.read_text())


def calls() -> list[Call]:
    """Return the calls of the list that the installed Keras has."""
    installed = parse_minor(keras.__version__)
    found = [
        Call(module, kind, text)
        for module, kinds in _read().items()
        for kind, texts in kinds.items()
        if kind not in ("not_applicable", "since")
        for text in texts
        if installed >= parse_minor(kinds.get("since", {}).get(text, ""))
    ]
    return [call for call in found if call.names <= set(dir(getattr(keras, call.module)))]


def not_applicable(module: str) -> dict[str, str]:
    """Return the classes that are not compared, with the reasons."""
    return dict(_read()[module].get("not_applicable", {}))


def classes_of(module: str) -> set[str]:
    """Return the classes that a module of Keras has now, each by one of its public names."""
    names: dict[type, list[str]] = {}
    for name, kind in vars(getattr(keras, module)).items():
        if inspect.isclass(kind):
            names.setdefault(kind, []).append(name)
    return {
        kind.__name__ if kind.__name__ in public else min(public) for kind, public in names.items()
    }


def _normal(*shape: int) -> np.ndarray:
    return _random.normal(size=(EXAMPLES, *shape)).astype("float32")


# What layers get: a list as one argument, a tuple as several.
LEARNED: dict[str, Any] = {  # behind a layer with weights, so that gradients pass through
    "vector": X,
    "sequence": _normal(6, 4),
    "image": _normal(8, 8, 3),
    "volume": _normal(4, 4, 4, 2),
    "lines_in_time": _normal(3, 6, 2),
    "volumes_in_time": _normal(3, 3, 3, 3, 2),
    "two_vectors": [X, _normal(8)],
    "two_sequences": [_normal(5, 4), _normal(6, 4)],
    "query_and_value": (_normal(5, 4), _normal(6, 4)),
    "sound": _normal(64),
    "wave": _normal(64, 1),
}
GIVEN: dict[str, Any] = {
    "zeros_and_steps": np.where(np.arange(6)[:, None] < 4, _normal(6, 4), 0.0).astype("float32"),
    "picture": _random.uniform(size=(EXAMPLES, 8, 8, 3)).astype("float32"),
    "labelled_pictures": {
        "images": _random.uniform(size=(EXAMPLES, 8, 8, 3)).astype("float32"),
        "labels": np.eye(3, dtype="float32")[LABELS],
    },
    "boxes": {
        "images": _normal(8, 8, 3),
        "bounding_boxes": {
            "boxes": np.sort(_random.uniform(0, 8, (EXAMPLES, 3, 4)), -1).astype("float32"),
            "labels": _random.integers(0, 2, (EXAMPLES, 3)),
        },
    },
    "ids": _random.integers(0, 7, (EXAMPLES, 6)),
    "two_ids": [_random.integers(0, 7, (EXAMPLES, 1)), _random.integers(0, 7, (EXAMPLES, 1))],
    "words": np.array(["a", "b", "c"])[_random.integers(0, 3, (EXAMPLES, 1))],
    "numbers": X,
}
# What losses and metrics get: targets, and the layers that predict them.
_signs = np.sign(X[:, :1])
_numbers = X @ _random.normal(size=(8, 2)).astype("float32")
TARGETS: dict[str, tuple[Any, Callable[[], list[Any]]]] = {
    "binary": (_signs > 0, lambda: [layers.Dense(1, "sigmoid")]),
    "classes": (LABELS, lambda: [layers.Dense(3, "softmax")]),
    "embeddings": (LABELS, lambda: [layers.Dense(3), layers.UnitNormalization()]),
    "numbers": (_numbers, lambda: [layers.Dense(2)]),
    "one_hot": (np.eye(3, dtype="float32")[LABELS], lambda: [layers.Dense(3, "softmax")]),
    "positive": (np.abs(_numbers) + 0.1, lambda: [layers.Dense(2, "softplus")]),
    "signs": (_signs, lambda: [layers.Dense(1, "tanh")]),
    "some_zeros": (np.maximum(_numbers, 0.0), lambda: [layers.Dense(2, "relu")]),
    "transcripts": (
        _random.integers(1, 4, (EXAMPLES, 2)),
        lambda: [layers.Dense(24), layers.Reshape((6, 4))],
    ),
}


def _layers(calls: Sequence[Call], exported: Path) -> Program:
    """All layers side by side: between two with weights, or behind the input without gradients."""
    kind = calls[0].kind
    values = LEARNED[kind] if kind in LEARNED else GIVEN[kind]
    x = [tf.constant(v) if v.dtype.kind == "U" else v for v in keras.tree.flatten(values)]

    def make() -> keras.Model:
        inputs = [keras.Input(value.shape[1:], dtype=value.dtype.name) for value in x]
        hidden = inputs
        if kind in LEARNED:
            hidden = [layers.Dense(each.shape[-1])(each) for each in inputs]
        packed = keras.tree.pack_sequence_as(values, hidden)
        flat = []
        for call in calls:
            layer = call.make(exported=exported)
            outputs = layer(*packed) if isinstance(packed, tuple) else layer(packed)
            for output in keras.tree.flatten(outputs):
                flat.append(layers.Flatten()(keras.ops.cast(output, "float32")))
        joined = layers.Concatenate()(flat) if len(flat) > 1 else flat[0]
        model = keras.Model(inputs, layers.Dense(3)(joined))
        model.compile(keras.optimizers.SGD(0.05), cross_entropy())
        return model

    def use(model: keras.Model) -> dict[str, Any]:
        before = model.get_weights()
        history = fit(model, x)
        for variable, was, now in zip(model.weights, before, model.get_weights(), strict=True):
            assert not variable.trainable or (was != now).any(), f"{variable.path} did not move"
        return {**history, "predicted": model.predict(x, verbose=0)}

    return make, use


def _predictions(calls: Sequence[Call]) -> Program:
    """Losses that outputs are trained with, or metrics of a model that stays as it is."""
    module, kind = calls[0].module, calls[0].kind
    y, predicting = TARGETS[kind]
    outputs = len(calls) if module == "losses" else 1

    def each(value: Any) -> Any:
        return [value] * outputs if outputs > 1 else value

    def make() -> keras.Model:
        inputs = keras.Input((8,))
        predicted = []
        for number in range(outputs):
            hidden = inputs
            for layer in [*predicting(), layers.Identity(name=f"output_{number}")]:
                hidden = layer(hidden)
            predicted.append(hidden)
        model = keras.Model(inputs, predicted if outputs > 1 else predicted[0])
        made = [call.make() for call in calls]
        if module == "losses":
            model.compile(keras.optimizers.SGD(0.01), made if outputs > 1 else made[0])
        else:
            loss = "sparse_categorical_crossentropy" if kind == "classes" else "mse"
            model.compile(keras.optimizers.SGD(0.0), loss, metrics=made)
        return model

    def use(model: keras.Model) -> dict[str, Any]:
        history = fit(model, y=each(y))
        options: dict[str, Any] = {"batch_size": 5, "verbose": 0, "return_dict": True}
        evaluated = model.evaluate(X[:37], each(y[:37]), **options)
        if module == "losses":
            assert all(first != second for first, second in history.values())
        results = {**history, **{f"evaluated {name}": value for name, value in evaluated.items()}}
        return {re.sub(r"_\d+$", "", name): value for name, value in results.items()}

    return make, use


class Programs:
    """The comparisons of a process.

    Args:
        strategy: of one worker.
        several: of two workers, for metrics, which are sums of what all workers have seen.
        folder: a new one.
    """

    def __init__(
        self,
        strategy: tfps.ParameterServerStrategy,
        several: tfps.ParameterServerStrategy,
        folder: Path,
    ) -> None:
        self._one, self._several = Comparison(strategy), Comparison(several)
        self._folder = folder

    @functools.cached_property
    def _exported(self) -> Path:
        model = keras.Sequential([keras.Input((8,)), layers.Dense(4)])
        model.export(self._folder / "exported", verbose=False)
        return self._folder / "exported"

    def results(self, calls: Sequence[Call]) -> dict[Call, str]:
        """Compare calls of one kind with Keras on one machine, in one model if none is refused.

        Raises:
            AssertionError: the numbers of a program differ.
        """
        try:
            self._compare(calls)
        except tfps.errors.UnsupportedError as error:
            if len(calls) > 1:
                return {call: self.results([call])[call] for call in calls}
            named = re.sub(r"^.*?(?=received )", "", f"{error}".replace("\n", " "))
            return {calls[0]: f"refused: {named}"}  # without names, which have numbers
        return dict.fromkeys(calls, "equal")

    def _compare(self, calls: Sequence[Call]) -> None:
        module = calls[0].module
        if module == "callbacks":
            make, use = callback_effects.program(calls[0].make, calls[0].kind, self._folder)
        elif module == "layers":
            make, use = _layers(calls, self._exported)
        else:
            make, use = _predictions(calls)
        comparison = self._several if module == "metrics" else self._one
        comparison.run(make, use)


def groups() -> list[list[Call]]:
    """Return the calls that are compared together: those of one kind, but each callback alone."""
    found: dict[Any, list[Call]] = {}
    for call in calls():
        alone = call.text if call.module == "callbacks" else ""
        found.setdefault((call.module, call.kind, alone), []).append(call)
    return list(found.values())
