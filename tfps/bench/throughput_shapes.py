"""The clusters and models of `tfps bench throughput`, and what is to be reached on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfps.bench.workload import MODELS


@dataclass(frozen=True)
class Aim:
    """A comparison of one row with another on one shape.

    Args:
        row: what is compared, a key of `ROWS`.
        with_row: what it is compared with.
        steps_per_execution: of both.
        value: the smallest ratio that is good; the largest one of CPU.
        quantity: of the medians, `steps_per_s` or `cpu_ms_per_step`.
    """

    row: str
    with_row: str
    steps_per_execution: int
    value: float
    quantity: str = "steps_per_s"

    @property
    def is_cost(self) -> bool:
        """Whether less is better."""
        return self.quantity != "steps_per_s"


@dataclass(frozen=True)
class Shape:
    """A cluster and what is trained on it.

    Args:
        model: a key of `MODELS`.
        workers: tasks that compute gradients.
        ps: tasks that keep parameters.
        aims: what is to be reached.
        rows: keys of `ROWS` that are measured; empty: all.
        lengths: of executions that are measured; empty: all.
        most_repetitions: turns of each row; what takes long varies less.
        unit_steps: an epoch has a multiple of it. Divisible by the longest execution and by the
            number of workers: no execution is cut short, no worker idles.
    """

    model: str
    workers: int
    ps: int
    aims: tuple[Aim, ...] = ()
    rows: tuple[str, ...] = ()
    lengths: tuple[int, ...] = ()
    most_repetitions: int = 3
    unit_steps: int = 100

    @property
    def title(self) -> str:
        """The shape in words."""
        workers = f"{self.workers} worker" + ("s" if self.workers > 1 else "")
        return f"{MODELS[self.model].title}, {workers} + {self.ps} ps"

    @property
    def place(self) -> dict[str, Any]:
        """Where its cases lie."""
        return {"model": self.model, "workers": self.workers, "ps": self.ps}


FIT_ROWS = ("single_fit", "stock_fit", "tfps_fit")
SHAPES = (
    Shape(
        "mlp",
        workers=1,
        ps=1,
        aims=(
            Aim("tfps_fit", "stock_fit", 50, 2.5),
            Aim("tfps_fit", "stock_fit", 1, 4.0),
            Aim("tfps_fit", "single_fit", 50, 0.55),
            Aim("tfps_fit", "single_fit", 50, 1.7, quantity="cpu_ms_per_step"),
            Aim("tfps_fit_grpc", "stock_fit", 50, 1.5),
            Aim("tfps_loop", "stock_loop", 1, 1.5),
            Aim("tfps_loop", "stock_loop", 50, 3.0),
        ),
    ),
    Shape(
        "mlp",
        workers=2,
        ps=1,
        aims=(
            Aim("tfps_fit", "stock_fit", 50, 3.0),
            Aim("tfps_fit", "stock_fit", 1, 6.0),
            Aim("tfps_fit", "single_fit", 50, 0.9),
            Aim("tfps_fit_grpc", "stock_fit", 50, 2.0),
        ),
    ),
    Shape(
        "layers",
        workers=1,
        ps=2,
        aims=(
            Aim("tfps_fit", "stock_fit", 50, 5.0),
            Aim("tfps_fit_grpc", "stock_fit", 50, 3.0),
        ),
        most_repetitions=2,
    ),
    Shape("layers", workers=2, ps=2, rows=FIT_ROWS, most_repetitions=2),
    Shape(
        "cnn",
        workers=1,
        ps=1,
        aims=(Aim("tfps_fit", "single_fit", 50, 1.15, quantity="cpu_ms_per_step"),),
        rows=FIT_ROWS,
    ),
    Shape("large", workers=1, ps=2, rows=FIT_ROWS, lengths=(1,), most_repetitions=2, unit_steps=4),
)


def shape_at(place: Mapping[str, Any]) -> Shape:
    """The shape that lies at a place."""
    return next(shape for shape in SHAPES if shape.place == place)
