"""`[job]` of a job file and `cluster.max_workers`: what they exclude, and where a job goes on."""

from __future__ import annotations

import gc
from typing import Any

import keras
import numpy as np
import pytest

import tfps
from tests.messages import check_message
from tfps.config import parse
from tfps.errors import ConfigError
from tfps.job.array_inputs import ArrayInputs
from tfps.job.check import check_settings
from tfps.job.fit_loop import train_with_fit
from tfps.strategy import named_job
from tfps.testing import InProcessCluster

EXAMPLES, BATCH = 12, 4


@pytest.mark.parametrize(
    ("overrides", "key", "received", "remedy"),
    [
        (["job.name=my job"], "job.name", "'my job'", "letters, digits"),
        (["job.name="], "job.name", "'job.name='", "a string in quotes"),
        (['job.name=""'], "job.name", "''", "a string, not empty"),
        (["job.fresh=true"], "job.fresh", "true", "set job.name"),
        (["job.fresh=1"], "job.fresh", "1", "true or false"),
        (["job.nam=night"], "job.nam", "unknown key", "did you mean name?"),
        (["cluster.max_workers=1"], "cluster.max_workers", "1", "2"),
        (["cluster.max_workers=0"], "cluster.max_workers", "0", "a whole number, at"),
        (
            ["training.batch_callbacks=never"],
            "training.batch_callbacks",
            "'never'",
            "one of auto, sampled, lock_step",
        ),
    ],
)
def test_what_cannot_work_is_named(
    overrides: list[str], key: str, received: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ConfigError) as raised:
        check_settings(None, overrides)
    [problem] = raised.value.problems
    check_message(problem, key, received=received, remedy=remedy)


def _train(strategy: Any, *, epochs: int, name: str | None) -> list[int]:
    """The numbers of the epochs that were trained."""
    values: dict[str, Any] = {"job": {"name": name}} if name else {}
    values |= {"data": {"batch_size": BATCH}, "training": {"epochs": epochs}}
    x, y = np.ones([EXAMPLES, 3], "float32"), np.ones([EXAMPLES, 1], "float32")
    inputs = ArrayInputs(x, y, x[:0], y[:0], x, y, "ones")
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, name="d")], name="m")
        model.compile(keras.optimizers.SGD(0.01, name="sgd"), "mse")
    record = train_with_fit(strategy, model, inputs, parse(values))
    assert int(model.optimizer.iterations) == epochs * EXAMPLES // BATCH
    return [epoch.epoch for epoch in record.epochs]


@pytest.mark.rare
def test_the_next_chief_goes_on_with_the_epoch_that_was_interrupted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gc.collect()
    with InProcessCluster(workers=1, ps=1) as cluster:
        options: dict[str, Any] = {"job": "of-a-file", "cluster_resolver": cluster.cluster_resolver}
        chief = tfps.ParameterServerStrategy(**options)
        assert _train(chief, epochs=2, name="of-a-file") == [1, 2]
        assert "resumes" not in capsys.readouterr().out
        named_job.OPEN_JOBS.clear()  # as of a chief that died
        chief = tfps.ParameterServerStrategy(**options)
        assert _train(chief, epochs=4, name="of-a-file") == [3, 4]
        assert "job      of-a-file resumes at epoch 3\n" in capsys.readouterr().out
        chief.close()
