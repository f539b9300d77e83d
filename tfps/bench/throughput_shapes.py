"""The clusters and models of `tfps bench throughput`, and what is to be reached on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfps.bench.workload import MODELS


@dataclass(frozen=True)
class Aim:
    """A ratio of one row's median over another's that is to be reached on a shape."""

    row: str
    with_row: str
    steps_per_execution: int  # of both
    value: float  # the smallest ratio of rates that is good; the largest one of CPU
    of_cpu: bool = False


@dataclass(frozen=True)
class Shape:
    """A cluster and what is trained on it."""

    model: str  # a key of `MODELS`
    workers: int
    ps: int
    aims: tuple[Aim, ...] = ()
    rows: tuple[str, ...] = ()  # keys of `ROWS` that are measured; empty: all
    lengths: tuple[int, ...] = ()  # of executions that are measured; empty: all
    most_repetitions: int = 3  # turns of each row; what takes long varies less
    # An epoch has a multiple of it. Divisible by the longest execution and by the number of
    # workers: no execution is cut short, no worker idles.
    unit_steps: int = 100

    @property
    def title(self) -> str:
        workers = f"{self.workers} worker" + ("s" if self.workers > 1 else "")
        return f"{MODELS[self.model].title}, {workers} + {self.ps} ps"

    @property
    def place(self) -> dict[str, Any]:
        """Where its cases lie."""
        return {"model": self.model, "workers": self.workers, "ps": self.ps}


FIT_ROWS = ("single_fit", "stock_fit", "tfps_fit")
MLP_AIMS = (
    Aim("tfps_fit", "stock_fit", 50, 2.5),
    Aim("tfps_fit", "stock_fit", 1, 4.0),
    Aim("tfps_fit", "single_fit", 50, 0.55),
    Aim("tfps_fit", "single_fit", 50, 1.7, of_cpu=True),
    Aim("tfps_fit_grpc", "stock_fit", 50, 1.5),
    Aim("tfps_loop", "stock_loop", 1, 1.5),
    Aim("tfps_loop", "stock_loop", 50, 3.0),
)
TWO_WORKERS_AIMS = (
    Aim("tfps_fit", "stock_fit", 50, 3.0),
    Aim("tfps_fit", "stock_fit", 1, 6.0),
    Aim("tfps_fit", "single_fit", 50, 0.9),
    Aim("tfps_fit_grpc", "stock_fit", 50, 2.0),
)
LAYERS_AIMS = (Aim("tfps_fit", "stock_fit", 50, 5.0), Aim("tfps_fit_grpc", "stock_fit", 50, 3.0))
CNN_AIMS = (Aim("tfps_fit", "single_fit", 50, 1.15, of_cpu=True),)
SHAPES = (
    Shape("mlp", 1, 1, MLP_AIMS),
    Shape("mlp", 2, 1, TWO_WORKERS_AIMS),
    Shape("layers", 1, 2, LAYERS_AIMS, most_repetitions=2),
    Shape("layers", 2, 2, rows=FIT_ROWS, most_repetitions=2),
    Shape("cnn", 1, 1, CNN_AIMS, rows=FIT_ROWS),
    Shape("large", 1, 2, rows=FIT_ROWS, lengths=(1,), most_repetitions=2, unit_steps=4),
)


def shape_at(place: Mapping[str, Any]) -> Shape:
    """The shape that lies at a place."""
    return next(shape for shape in SHAPES if shape.place == place)
