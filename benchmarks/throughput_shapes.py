"""Ways of `python -m benchmarks throughput` to train, its clusters and models, and its aims.

All ways train on the same images, shuffled. Those with `fit` get them as arrays, in the very same
call: `fit(x, y, batch_size=...)`. A single process keeps them in its memory; tf_keras turns them
into a dataset function of its own for TensorFlow's strategy, so every worker holds all of them;
tfps copies them to every worker too. No images travel while an epoch is measured. A custom loop
takes no arrays: both of them get one dataset function that does what Keras does with arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import tfps
from benchmarks.training import Row, stock_strategy
from benchmarks.workload import MODELS
from tfps.units import counted

LEGEND = (
    "Single process and tfps: Keras 3. Stock: TensorFlow's own ParameterServerStrategy, tf_keras."
)


def _strategy(*, transport: str = "auto") -> Any:
    return tfps.ParameterServerStrategy(transport=transport)


# In the order of tables and plots. "Stock" is TensorFlow's own strategy; tables and plots say so.
ROWS = {
    "single_fit": Row("single process fit"),
    "stock_fit": Row("stock fit", stock_strategy, keras="tf_keras"),
    "stock_loop": Row("stock custom loop", stock_strategy, keras="tf_keras", has_loop=True),
    "tfps_fit": Row("tfps fit", _strategy),
    "tfps_fit_grpc": Row("tfps fit, grpc", partial(_strategy, transport="grpc"), longest_only=True),
    "tfps_loop": Row("tfps custom loop", _strategy, has_loop=True),
}
FIT_ROWS = ("single_fit", "stock_fit", "tfps_fit")


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
    rows: tuple[str, ...] = tuple(ROWS)  # that are measured
    lengths: tuple[int, ...] = (1, 50)  # of executions that are measured
    most_repetitions: int = 3  # turns of each row; what takes long varies less
    # An epoch has a multiple of it. Divisible by the longest execution and by the number of
    # workers: no execution is cut short, no worker idles.
    unit_steps: int = 100

    @property
    def title(self) -> str:
        return f"{MODELS[self.model].title}, {counted(self.workers, 'worker')} + {self.ps} ps"

    @property
    def place(self) -> dict[str, Any]:
        """The place of its cases among the results."""
        return {"model": self.model, "workers": self.workers, "ps": self.ps}

    def lengths_of(self, row: str) -> tuple[int, ...]:
        """Return the lengths of execution at which a row is measured."""
        return self.lengths[-1:] if ROWS[row].longest_only else self.lengths


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
    """Return the shape that lies at a place, which may be on other axes as well."""
    return next(shape for shape in SHAPES if shape.place.items() <= place.items())
