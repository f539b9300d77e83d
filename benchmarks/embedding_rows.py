"""Ways of `python -m benchmarks embedding` to train, lengths of executions, and aims.

TensorFlow's own strategy has its tables divided among the servers, or whole on one server each:
which is better depends on their number and on the ids, so each is measured, and the better counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import tfps
from benchmarks.training import Row, stock_strategy
from tfps.transport import tokens

SERVERS = 2
LONGEST = 20  # steps of one execution
LEGEND = (
    "Stock: TensorFlow's own ParameterServerStrategy with tf_keras, its tables divided among the "
    "servers or whole on one each. Single process: tf_keras too, which updates rows alone by "
    "itself, without a cluster."
)


def _divided_stock() -> Any:
    def partitioner() -> Any:
        import tensorflow as tf

        return tf.distribute.experimental.partitioners.FixedShardsPartitioner(SERVERS)

    return stock_strategy(partitioner)


def _strategy(*, uses_tcp: bool = False) -> Any:
    strategy = tfps.ParameterServerStrategy(variable_partitioner=tfps.partitioners.RowShuffle())
    if uses_tcp:
        _leave_unix_sockets(strategy.runtime)
    return strategy


def _leave_unix_sockets(runtime: Any) -> None:
    """Let workers reach the servers as from another machine, since the system counts that."""
    for endpoint in runtime.data_plane.endpoints.values():
        texts = (each.to_json() for each in (endpoint, replace(endpoint, unix_name="")))
        known, now = (text.encode() for text in texts)
        for channel in runtime.worker_channels:
            channel.ask(tokens.MOVED, known, now)


# In the order of tables and pictures.
ROWS = {
    "single_loop": Row("single process", keras="tf_keras", has_loop=True),
    "stock_divided": Row("stock, divided", _divided_stock, keras="tf_keras", has_loop=True),
    "stock_whole": Row("stock, whole", stock_strategy, keras="tf_keras", has_loop=True),
    "tfps_loop": Row("tfps loop", _strategy, has_loop=True),
    "tfps_fit": Row("tfps fit", _strategy),
    "tfps_loop_tcp": Row("tfps loop, TCP", partial(_strategy, uses_tcp=True), has_loop=True),
}
SINGLE, OVER_TCP, STOCK = "single_loop", "tfps_loop_tcp", ("stock_divided", "stock_whole")
# With `fit` the length makes no difference; nor has what counts bytes an aim for its rate.
LENGTHS: Mapping[str, tuple[int, ...]] = {
    name: {"tfps_fit": (1,), SINGLE: (LONGEST,), OVER_TCP: (LONGEST,)}.get(name, (1, LONGEST))
    for name in ROWS
}


def rows_with(workers: int) -> list[str]:
    """Return the rows to measure; rows of bytes need one worker, as a step's bytes stay equal."""
    return [name for name in ROWS if workers == 1 or name not in (SINGLE, OVER_TCP)]


@dataclass(frozen=True)
class EmbeddingAim:
    """An aim against the better of TensorFlow's own ways, at one length of an execution."""

    row: str
    steps_per_execution: int
    rate: float  # at least, over theirs
    cpu: float  # per step, at most, over theirs


AIMS = (
    EmbeddingAim("tfps_loop", LONGEST, 2.0, 0.45),
    EmbeddingAim("tfps_loop", 1, 4.0, 0.3),
    EmbeddingAim("tfps_fit", 1, 4.0, 0.3),
)
MANY_TABLES = 26  # where the aims are
MANY_OVER_ONE_AIM = 1.1  # time of a step with `MANY_TABLES` over one table with the same rows
BYTES_AIM = 1.08  # over those of the rows themselves, both ways
IMBALANCE_AIM = 1.05  # bytes of the busiest server over the mean
