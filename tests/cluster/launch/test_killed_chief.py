"""SIGKILL of a chief in the middle of `fit`: the next one of that job goes on where it was."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tfps.launch import LocalCluster
from tfps.launch.environment import task_environment
from tfps.testing import Command

pytestmark = pytest.mark.timeout(240)

ROOT = Path(__file__).resolve().parents[3]
# All numbers of the model, slots included, are the number of its updates.
CHIEF = """
import sys
import keras, numpy as np
import tfps
from tests.cluster.checkpoint.counting_model import counting_model, updates_of

strategy = tfps.ParameterServerStrategy(job="counting")
with strategy.scope():
    model = counting_model()
model.optimizer.build(model.trainable_variables)
found = strategy.stats()
print("found", updates_of(model), "of", found.updates_applied, flush=True)


class Say(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        print("update", strategy.stats().updates_applied, flush=True)


epochs = int(sys.argv[1])
model.fit(np.zeros([20, 1]), np.zeros([20, 1]), batch_size=1, epochs=epochs, verbose=0,
          callbacks=[Say()] if epochs > 9 else [])
print("ended", updates_of(model), "of", strategy.stats().updates_applied, flush=True)
"""


class Chiefs:
    """Start one chief after the other on the tasks of a cluster.

    Args:
        script: of all.
        environment: of all.
    """

    def __init__(self, script: Path, environment: dict[str, str]) -> None:
        self._script, self._environment = script, environment

    def _start(self, *arguments: str) -> Command:
        command = [sys.executable, str(self._script), *arguments]
        return Command(command, deadline_s=90, environment=self._environment, folder=ROOT)

    def killed(self) -> str:
        """One that is killed in the middle of `fit`; answers what it has said."""
        with self._start("100000") as chief:
            while chief.output.count("update ") < 5:
                assert chief.process.poll() is None, chief.describe()
                time.sleep(0.05)
            os.kill(chief.process.pid, signal.SIGKILL)
            assert chief.wait() == -signal.SIGKILL
            return chief.output

    def ended(self, *arguments: str) -> str:
        """One that ends by itself; answers what it has said."""
        with self._start(*arguments) as chief:
            assert chief.wait() == 0, chief.describe()
            return chief.output


def _numbers(word: str, output: str) -> tuple[int, int]:
    found = re.search(rf"^{word} (\d+) of (\d+)$", output, re.M)
    assert found is not None, output
    return int(found[1]), int(found[2])


def test_the_next_chief_goes_on(cluster: Callable[..., LocalCluster], tmp_path: Path) -> None:
    """Weights, slots, iterations and counts agree, and are at least what the dead one has seen."""
    local, script = cluster(workers=2, ps=1), tmp_path / "chief.py"
    script.write_text(CHIEF)
    chief = task_environment(local.spec, "chief", 0)
    chiefs = Chiefs(script, {**os.environ, **chief, "PYTHONPATH": str(ROOT)})
    first = chiefs.killed()
    assert _numbers("found", first) == (0, 0)
    seen = max(int(number) for number in re.findall(r"^update (\d+)$", first, re.M))
    second = chiefs.ended("2")
    found, counted = _numbers("found", second)
    assert found == counted >= seen
    assert _numbers("ended", second) == (found + 40, found + 40)
