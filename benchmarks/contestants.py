"""The optimizers that `python -m benchmarks staleness` compares: one table, a line for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tfps


@dataclass(frozen=True)
class Contestant:
    """An optimizer for asynchronous workers."""

    title: str
    base: str  # of `BASES`: what it does where nothing is stale, and is compared with
    # Makes it of a plain one and of its rate; None: it is the plain one.
    wrap: Callable[[Any, Any], Any] | None = None

    def make(self, learning_rate: Any) -> Any:
        """Return the optimizer, with a learning rate or a schedule of its own."""
        import keras

        base = BASES[self.base]
        plain = getattr(keras.optimizers, base.kind)(learning_rate, **base.arguments)
        return plain if self.wrap is None else self.wrap(plain, learning_rate)


@dataclass(frozen=True)
class Base:
    """A plain optimizer: a class of Keras and its arguments."""

    kind: str
    # Among which each contestant on it finds its best learning rate. A discount of a tenth wants
    # ten times the rate, so they reach far.
    rates: tuple[float, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)


NESTEROV = {"momentum": 0.9, "nesterov": True}
BASES: Mapping[str, Base] = {
    "sgd": Base("SGD", (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)),
    "momentum": Base("SGD", (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1), NESTEROV),
    "adagrad": Base("Adagrad", (0.001, 0.003, 0.01, 0.03, 0.1)),
    "adam": Base("Adam", (0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01)),
}


def _wrapped(name: str, **arguments: Any) -> Callable[[Any, Any], Any]:
    return lambda plain, _: getattr(tfps.optimizers, name)(plain, **arguments)


def _dana(plain: Any, rate: Any) -> Any:
    return tfps.optimizers.DANA(rate, momentum=plain.momentum)


def _async_adam(momentum: str) -> Callable[[Any, Any], Any]:
    return lambda _, rate: tfps.optimizers.AsyncAdam(rate, momentum)


def _discounted(base: str) -> dict[str, Contestant]:
    wrap = _wrapped("StalenessAware", discount="exponential")
    return {f"{base}_exponential": Contestant("exp(-0.1 s)", base, wrap)}


CONTESTANTS: Mapping[str, Contestant] = {
    "sgd": Contestant("SGD", "sgd"),
    **_discounted("sgd"),
    "momentum": Contestant("Nesterov SGD", "momentum"),
    "momentum_dana": Contestant("DANA", "momentum", _dana),
    "adagrad": Contestant("Adagrad", "adagrad"),
    "adam": Contestant("Adam", "adam"),
    **_discounted("adam"),
    "adam_per_worker": Contestant("AsyncAdam", "adam", _async_adam("per_worker")),
    "adam_ordered": Contestant("AsyncAdam, ordered", "adam", _async_adam("ordered")),
}
