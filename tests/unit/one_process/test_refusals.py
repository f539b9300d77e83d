"""`tfps check` refuses models that a strategy would refuse, before it, in the same words."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from tfps.config import bundle, load
from tfps.errors import ConfigError, TfpsError
from tfps.job.check import check_job
from tfps.job.job import build_model
from tfps.job.train import strategy_of_job
from tfps.testing import InProcessCluster

SMALL = ["data.source=subset", "model.name=mlp", "model.mlp.hidden_units=[4]", "cluster.ps=2"]
EXAMPLES = (np.zeros([8, 28, 28, 1], "uint8"), np.zeros([8], "int64"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ["training.optimizer.name=dana", "consistency.mode=synchronous"],
        ["training.optimizer.use_ema=true", "consistency.mode=local_steps"],
        ["training.optimizer.use_ema=true", "consistency.warm_up_steps=2"],
        ["training.optimizer.name=lamb", "partitioner.name=fixed_shards"],
        ["partitioner.name=row_modulo", "partitioner.shards=5"],
        [
            "training.optimizer.global_clipnorm=1.0",
            "training.optimizer.gradient_accumulation_steps=2",
        ],
        ["training.optimizer.clipnorm=1.0", "training.optimizer.clipvalue=1.0"],
    ],
    ids=["dana", "average", "warm_up", "shards", "rows", "clipping", "arguments"],
)
def test_a_job_is_refused_in_the_same_words(
    cluster: InProcessCluster, overrides: list[str]
) -> None:
    keras.utils.clear_session()  # names begin anew, as in a process of its own
    with pytest.raises(ConfigError) as of_check:
        check_job(None, [*SMALL, *overrides])
    (problem,) = of_check.value.problems
    config = load(bundle.config_path(None), [*SMALL, *overrides])
    keras.utils.clear_session()
    with strategy_of_job(config, cluster.cluster_resolver) as strategy:
        with pytest.raises(TfpsError) as of_strategy:
            build_model(config, steps=1, scope=strategy.scope()).fit(*EXAMPLES, verbose=0)
    # Before the colon is the argument or the optimizer that it is about.
    said = str(of_strategy.value)
    assert (said.partition(": ")[2] or said) in problem
