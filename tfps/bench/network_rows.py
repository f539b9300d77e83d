"""What `tfps bench network` compares: models, ways to train them, and aims."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

import tfps
from tfps.bench.training import Row, stock_strategy
from tfps.bench.workload import LEARNING_RATE, MODELS, Model
from tfps.compression import (
    Both,
    Cast,
    DeepGradientCompression,
    Difference,
    PowerSGD,
    Quantize,
    TopK,
)

SLOW_MBIT, FAST_MBIT = 100, 1000  # the aims are about the slow links
UNLIMITED = 0  # in the place of a rate
RATES = (SLOW_MBIT, FAST_MBIT, UNLIMITED)

SMALL_AIM = 8.0
BOTH_AIM = 3.0
FINE_TUNING_AIM = 3.0
ACCURACY_AIM = 0.5  # points below what it is compared with, at the low end of the interval
CODING_AIM = 1.3
ACCOUNTING_AIM = 0.02

PERIOD_STEPS = 16
LARGE_WIDTHS = (3500, 3500, 448)
FROZEN_LAYERS = 2
MOMENTUM_RATE, MOMENTUM = 0.02, 0.9
WARM_UP_STEPS = 100


@dataclass(frozen=True)
class FineTuned(Model):
    """A model of which the first dense layers are frozen."""

    frozen_layers: int = 0

    def build(self, keras: Any) -> Any:
        model = super().build(keras)
        dense = [layer for layer in model.layers if isinstance(layer, keras.layers.Dense)]
        for layer in dense[: self.frozen_layers]:
            layer.trainable = False
        return model


LARGE, FINE_TUNED, TRAINED = "large", "fine_tuned", "cnn"
SMALL_MODELS = ("mlp", TRAINED)
NETWORK_MODELS: Mapping[str, Model] = {
    **{name: MODELS[name] for name in SMALL_MODELS},
    LARGE: Model("16 million parameters", LARGE_WIDTHS),
    FINE_TUNED: FineTuned(
        "16 million parameters, 90 % frozen", LARGE_WIDTHS, frozen_layers=FROZEN_LAYERS
    ),
}
# Of models whose steps take ten seconds on slow links, no more are measured.
MOST_STEPS: Mapping[str, int] = {LARGE: 4, FINE_TUNED: 4}


@contextlib.contextmanager
def everything_travels() -> Iterator[None]:
    """Send what no step changes with each reply, too: what "only what changed" is compared with."""
    from tfps.runtime.program.program import Program

    with mock.patch.object(Program, "moving", property(lambda self: list(self.variables))):
        yield


def adam(keras: Any) -> Any:
    """What trains a model unless a way says otherwise."""
    return keras.optimizers.Adam(LEARNING_RATE)


def plain_sgd(keras: Any) -> Any:
    """For codecs under which workers have the momentum."""
    return keras.optimizers.SGD(MOMENTUM_RATE)


def momentum_sgd(keras: Any) -> Any:
    """What those codecs are compared with."""
    return keras.optimizers.SGD(MOMENTUM_RATE, momentum=MOMENTUM)


@dataclass(frozen=True, kw_only=True)
class NetworkWay:
    """A way to train over a network.

    Args:
        title: in tables.
        compression: of the strategy.
        models: that are trained so, by their keys.
        optimizer: made of `keras` or `tf_keras`.
        around: holds while it trains.
        period_steps: steps for each exchange.
        is_everywhere: measured on fast links, too.
        warm: the codec of a training to an accuracy, where it is to warm up.
        over: the way that its accuracy is compared with; None: the training is left out.
        is_stock: TensorFlow's own strategy.
    """

    title: str
    compression: Any = None
    models: tuple[str, ...] = SMALL_MODELS
    optimizer: Callable[[Any], Any] = adam
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    period_steps: int = 1
    is_everywhere: bool = False
    warm: Any = None
    over: str | None = "whole"
    is_stock: bool = False

    def options(self, *, is_warm: bool) -> dict[str, Any]:
        """Of the strategy.

        Args:
            is_warm: for a training to an accuracy.
        """
        codec = self.warm if is_warm and self.warm is not None else self.compression
        found: dict[str, Any] = {"compression": codec}
        if self.period_steps > 1:
            found["consistency"] = tfps.LocalSteps(self.period_steps)
        return found


_ALL = (*SMALL_MODELS, LARGE)
BOTH, SMALL = "both_8", "top_k_difference_2"  # those that have aims
WAYS: Mapping[str, NetworkWay] = {
    "whole": NetworkWay(title="no codec", models=_ALL, is_everywhere=True),
    "cast": NetworkWay(title="bfloat16 up", compression=Cast("bfloat16"), models=_ALL),
    "quantize_8": NetworkWay(
        title="8 bits up", compression=Quantize(8), models=_ALL, is_everywhere=True
    ),
    "quantize_4": NetworkWay(title="4 bits up", compression=Quantize(4)),
    "quantize_2": NetworkWay(title="2 bits up", compression=Quantize(2)),
    "quantize_1": NetworkWay(title="1 bit up", compression=Quantize(1)),
    "top_k": NetworkWay(title="1 % up", compression=TopK(0.01), models=_ALL, is_everywhere=True),
    "deep_gradient": NetworkWay(
        title="1 % up, momentum there",
        compression=DeepGradientCompression(0.01),
        warm=DeepGradientCompression(0.01, warm_up_steps=WARM_UP_STEPS),
        optimizer=plain_sgd,
        over="momentum",
    ),
    "power_sgd": NetworkWay(title="rank 2 up", compression=PowerSGD(2)),
    BOTH: NetworkWay(
        title="8 bits both ways",
        compression=Both(up=Quantize(8), down=Quantize(8)),
        is_everywhere=True,
    ),
    "top_k_4": NetworkWay(
        title="1 % up, 4 bits down", compression=Both(up=TopK(0.01), down=Quantize(4))
    ),
    **{
        f"top_k_difference_{bits}": NetworkWay(
            title=f"1 % up, {bits} bits of change",
            compression=Both(up=TopK(0.01), down=Difference(Quantize(bits))),
            is_everywhere=True,
        )
        for bits in (4, 2)
    },
    "local_steps": NetworkWay(
        title=f"local steps {PERIOD_STEPS}", period_steps=PERIOD_STEPS, is_everywhere=True
    ),
    "momentum": NetworkWay(
        title="no codec, SGD", models=(), optimizer=momentum_sgd, over="momentum"
    ),
    "stock": NetworkWay(title="stock", is_everywhere=True, is_stock=True, over=None),
    "everything": NetworkWay(
        title="everything travels", models=(FINE_TUNED,), around=everything_travels, over=None
    ),
    "changes": NetworkWay(title="only what changed", models=(FINE_TUNED,), over=None),
}
CODECS = [name for name, way in WAYS.items() if way.compression is not None]

STOCK = Row("stock", stock_strategy, keras="tf_keras", has_loop=True)


def is_usual(rate: int, model: str, way: str) -> bool:
    """Whether a row is measured where nobody chooses: on fast links not all of them are."""
    if rate == SLOW_MBIT or (rate == UNLIMITED and model == TRAINED):
        return True
    chosen = WAYS[way]
    return model not in SMALL_MODELS or (model == TRAINED and chosen.is_everywhere)
