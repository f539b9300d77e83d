"""The clusters and models of `tfps bench throughput`, and what is to be reached on them."""

from __future__ import annotations

from dataclasses import dataclass

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
    """

    model: str
    workers: int
    ps: int
    aims: tuple[Aim, ...] = ()

    @property
    def title(self) -> str:
        """The shape in words."""
        workers = f"{self.workers} worker" + ("s" if self.workers > 1 else "")
        return f"{MODELS[self.model].title}, {workers} + {self.ps} ps"


SHAPES = (
    Shape(
        "mlp",
        workers=1,
        ps=1,
        aims=(
            Aim("tfps_fit", "stock_fit", 50, 4.0),
            Aim("tfps_fit", "stock_fit", 1, 5.0),
            Aim("tfps_fit", "single_fit", 50, 0.75),
            Aim("tfps_fit", "single_fit", 50, 1.6, quantity="cpu_ms_per_step"),
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
            Aim("tfps_fit", "stock_fit", 50, 4.0),
            Aim("tfps_fit", "stock_fit", 1, 5.0),
            Aim("tfps_fit", "single_fit", 50, 0.9),
            Aim("tfps_fit_grpc", "stock_fit", 50, 2.0),
        ),
    ),
    Shape(
        "layers",
        workers=1,
        ps=2,
        aims=(
            Aim("tfps_fit", "stock_fit", 50, 6.0),
            Aim("tfps_fit_grpc", "stock_fit", 50, 3.0),
        ),
    ),
    Shape("layers", workers=2, ps=2),
)
