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
from tfps.bench.workload import MODELS, Model

PERIOD_STEPS = 16
FINE_TUNING_AIM = 3.0
ACCOUNTING_AIM = 0.02
LARGE_WIDTHS = (3500, 3500, 448)
FROZEN_LAYERS = 2
SLOW_MBIT = 100  # of the links that aims are about


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


NETWORK_MODELS: Mapping[str, Model] = {
    "mlp": MODELS["mlp"],
    "cnn": MODELS["cnn"],
    "large": Model("16 million parameters", LARGE_WIDTHS),
    "fine_tuned": FineTuned(
        "16 million parameters, 90 % frozen", LARGE_WIDTHS, frozen_layers=FROZEN_LAYERS
    ),
}


@contextlib.contextmanager
def everything_travels() -> Iterator[None]:
    """Send what no step changes with each reply, too: what "only what changed" is compared with."""
    from tfps.runtime.program.program import Program

    with mock.patch.object(Program, "moving", property(lambda self: list(self.variables))):
        yield


@dataclass(frozen=True)
class NetworkWay:
    """A way to train over a network.

    Args:
        title: in tables.
        models: that are trained so, by their keys.
        options: of the strategy, made when TensorFlow is there.
        around: holds while it trains.
        period_steps: steps for each exchange.
    """

    title: str
    models: tuple[str, ...] = ("mlp", "cnn", "large")
    options: Callable[[], dict[str, Any]] = dict
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    period_steps: int = 1
    is_stock: bool = False


def _up(codec: str, setting: Any) -> dict[str, Any]:
    """Codecs import TensorFlow, which listing the options of a benchmark shall not."""
    return {"compression": getattr(tfps.compression, codec)(setting)}


WAYS: Mapping[str, NetworkWay] = {
    "whole": NetworkWay("tfps"),
    "cast": NetworkWay("tfps, gradients as bfloat16", options=lambda: _up("Cast", "bfloat16")),
    "quantize": NetworkWay("tfps, gradients in 8 bits", options=lambda: _up("Quantize", 8)),
    "top_k": NetworkWay("tfps, 1 % of gradients", options=lambda: _up("TopK", 0.01)),
    "local_steps": NetworkWay(
        f"tfps, local steps {PERIOD_STEPS}",
        options=lambda: {"consistency": tfps.LocalSteps(PERIOD_STEPS)},
        period_steps=PERIOD_STEPS,
    ),
    "stock": NetworkWay("stock", models=("mlp", "cnn"), is_stock=True),
    "everything": NetworkWay(
        "tfps, everything travels", models=("fine_tuned",), around=everything_travels
    ),
    "changes": NetworkWay("tfps, only what changed", models=("fine_tuned",)),
}

STOCK = Row("stock", stock_strategy, keras="tf_keras", has_loop=True)
