"""The ways to train one model, each of which can run measured epochs.

All rows train on the same images, shuffled. The rows with `fit` get them as arrays, in the very
same call: `fit(x, y, batch_size=...)`. A single process keeps them in its memory; tf_keras turns
them into a dataset function of its own for TensorFlow's strategy, so every worker holds all of
them; tfps copies them to every worker too. Nobody moves images while an epoch is measured. A custom
loop takes no arrays: both of them get one dataset function that does what Keras does with arrays.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tfps
from tfps.bench.training import Row, stock_strategy

LEGEND = (
    "Single process and tfps: Keras 3. Stock: TensorFlow's own ParameterServerStrategy, tf_keras."
)


def _strategy(*, transport: str = "auto", pipeline_steps: int = 0) -> Any:
    consistency = tfps.Asynchronous(pipeline_steps=pipeline_steps)
    return tfps.ParameterServerStrategy(transport=transport, consistency=consistency)


# In the order of tables and plots. "Stock" is TensorFlow's own strategy; tables and plots say so.
ROWS = {
    "single_fit": Row("single process fit"),
    "stock_fit": Row("stock fit", stock_strategy, keras="tf_keras"),
    "stock_loop": Row("stock custom loop", stock_strategy, keras="tf_keras", has_loop=True),
    "tfps_fit": Row("tfps fit", _strategy),
    "tfps_fit_grpc": Row("tfps fit, grpc", partial(_strategy, transport="grpc"), longest_only=True),
    "tfps_fit_pipelined": Row(
        "tfps fit, pipelined", partial(_strategy, pipeline_steps=1), longest_only=True
    ),
    "tfps_loop": Row("tfps custom loop", _strategy, has_loop=True),
}
