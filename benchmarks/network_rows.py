"""Models of `python -m benchmarks network`, ways to train them, and aims."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass
from typing import Any
from unittest import mock

import tfps
from benchmarks.training import Row, stock_strategy
from benchmarks.workload import LEARNING_RATE, MODELS, Model
from tfps.compression import Cast, Delta, PushPull, Quantize, TopK
from tfps.placement import AllReduce

STEPS, ACCURACY = "steps", "accuracy"  # the parts of the benchmark
WORKERS, SERVERS = 2, 2
SLOW_MBIT, FAST_MBIT = 100, 1000  # the aims are about the slow links
UNLIMITED = 0  # stands for a rate
RATES = (SLOW_MBIT, FAST_MBIT, UNLIMITED)

SMALL_AIM = 8.0
BOTH_AIM = 3.0
FINE_TUNING_AIM = 3.0
ACCURACY_AIM = 0.5  # points below what it is compared with, at the low end of the interval
CODING_AIM = 1.3
ACCOUNTING_AIM = 0.02

# By the numbers of workers and servers: steps/s of all-reduce over those of servers.
REDUCED_AIMS = {(WORKERS, SERVERS): 1.5, (4, 1): 2.5}
ROUNDS, REDUCED = "rounds", "all_reduce"  # the begin of the names of these ways
PERIOD_STEPS = 16
LARGE_WIDTHS = (3500, 3500, 448)
FROZEN_LAYERS = 2


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
def send_all_variables() -> Iterator[None]:
    """Send what no step changes with each reply, too: what "only what changed" is compared with."""
    from tfps.runtime.program.program import Program

    with mock.patch.object(
        Program, "changing_variables", property(lambda self: list(self.variables))
    ):
        yield


@dataclass(frozen=True)
class NetworkWay:
    """A way to train over a network."""

    title: str  # in tables
    compression: Any = None  # of the strategy
    _: KW_ONLY
    models: tuple[str, ...] = SMALL_MODELS  # that are trained so
    rounds: bool = False  # whether an update is the mean of all workers
    placement: Any = None  # of the strategy
    workers: int = WORKERS
    servers: int = SERVERS
    around: Callable[[], AbstractContextManager[None]] = nullcontext  # holds while it trains
    period_steps: int = 1  # for each exchange
    is_everywhere: bool = False  # measured on fast links, too
    is_trained: bool = True  # to an accuracy
    is_stock: bool = False  # TensorFlow's own strategy

    def strategy(self) -> Any:
        """Return a tfps strategy."""
        options: dict[str, Any] = {"compression": self.compression, "placement": self.placement}
        if self.rounds:
            options["consistency"] = tfps.Synchronous()
        if self.period_steps > 1:
            options["consistency"] = tfps.LocalSteps(self.period_steps)
        return tfps.ParameterServerStrategy(**options)

    def optimizer(self, keras: Any) -> Any:
        """Make the optimizer that the servers run."""
        return keras.optimizers.Adam(LEARNING_RATE)


_ALL = (*SMALL_MODELS, LARGE)
BOTH, SMALL = "both_8", "top_k_difference_2"  # those that have aims
WAYS: Mapping[str, NetworkWay] = {
    "whole": NetworkWay("no codec", models=_ALL, is_everywhere=True),
    "cast": NetworkWay("bfloat16 up", Cast("bfloat16"), models=_ALL),
    "quantize_8": NetworkWay("8 bits up", Quantize(8), models=_ALL, is_everywhere=True),
    "quantize_4": NetworkWay("4 bits up", Quantize(4)),
    "quantize_2": NetworkWay("2 bits up", Quantize(2)),
    "quantize_1": NetworkWay("1 bit up", Quantize(1)),
    "top_k": NetworkWay("1 % up", TopK(0.01), models=_ALL, is_everywhere=True),
    BOTH: NetworkWay(
        "8 bits both ways", PushPull(push=Quantize(8), pull=Quantize(8)), is_everywhere=True
    ),
    "top_k_4": NetworkWay("1 % up, 4 bits down", PushPull(push=TopK(0.01), pull=Quantize(4))),
    **{
        f"top_k_difference_{bits}": NetworkWay(
            f"1 % up, {bits} bits of change",
            PushPull(push=TopK(0.01), pull=Delta(Quantize(bits))),
            is_everywhere=True,
        )
        for bits in (4, 2)
    },
    "local_steps": NetworkWay(
        f"local steps {PERIOD_STEPS}", period_steps=PERIOD_STEPS, is_everywhere=True
    ),
    "stock": NetworkWay("stock", is_everywhere=True, is_trained=False, is_stock=True),
    "everything": NetworkWay(
        "everything travels", models=(FINE_TUNED,), around=send_all_variables, is_trained=False
    ),
    **{
        f"{name}_{workers}_{servers}": NetworkWay(
            f"{title}, {workers} + {servers}",
            models=(LARGE,),
            rounds=True,
            placement=placement,
            workers=workers,
            servers=servers,
            is_trained=False,
        )
        for workers, servers in REDUCED_AIMS
        for name, title, placement in (
            (ROUNDS, "synchronous", None),
            (REDUCED, "all-reduce", AllReduce()),
        )
    },
    "changes": NetworkWay("only what changed", models=(FINE_TUNED,), is_trained=False),
}
CODECS = [name for name, way in WAYS.items() if way.compression is not None]

STOCK = Row("stock", stock_strategy, keras="tf_keras", has_loop=True)


def is_usual(rate: int, model: str, way: str) -> bool:
    """Return whether a row is measured by default: on fast links not all of them are."""
    if rate == SLOW_MBIT or (rate == UNLIMITED and model == TRAINED):
        return True
    return model not in SMALL_MODELS or (model == TRAINED and WAYS[way].is_everywhere)


def link_title(rate: int) -> str:
    """Return the title of a link rate."""
    return f"{rate} Mbit/s" if rate else "no limit"


def model_title(model: str) -> str:
    """Return the title of a model."""
    return NETWORK_MODELS[model].title
