"""`tfps run` starts a parameter server again where the strategy keeps checkpoints."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.harness.command import Command

pytestmark = [pytest.mark.repeats, pytest.mark.timeout(180)]

SCRIPT = """
import os, sys
import keras, numpy as np, tfps

here = os.path.dirname(__file__)
folder = os.path.join(here, "checkpoints")
fault_tolerance = tfps.FaultTolerance(checkpoints=folder, every_steps=500)
strategy = tfps.ParameterServerStrategy(batch_callbacks="sampled", fault_tolerance=fault_tolerance)
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

class Watch(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 1200:  # while the chief itself has nothing to do with the servers' variables
            print("middle", flush=True)

    def on_epoch_end(self, epoch, logs=None):
        print("epoch", epoch, flush=True)
        self.epochs = epoch + 1
        model.stop_training = os.path.exists(os.path.join(here, "enough"))

watch = Watch()
model.fit(np.ones([8000, 4]), np.ones([8000, 1]), batch_size=4, epochs=10000, verbose=0,
          callbacks=[watch])
print("steps", watch.epochs * 2000, "versions", strategy.stats().versions, flush=True)
"""


@pytest.mark.parametrize("index", [0, 1])
def test_a_killed_server_is_started_again(index: int, tmp_path: Path) -> None:
    script, logs = tmp_path / "train.py", tmp_path / "logs"
    script.write_text(SCRIPT)
    arguments = [sys.executable, "-m", "tfps", "run", "--workers", "1", "--ps", "2"]
    arguments += ["--log-dir", str(logs), str(script)]
    with Command(arguments, deadline_s=120, environment={"TF_CONFIG": None}) as command:
        command.wait_for("middle")
        for task in command.children():
            if task.name() == f"ps {index}":
                task.send_signal(signal.SIGKILL)
        command.wait_for(rf"back again: ps {index} \(back at update ")
        (tmp_path / "enough").touch()
        assert command.wait() == 0, command.describe()
        said, words = command.errors, command.output.split()
    assert f"tfps: 1 restart: ps {index} (SIGKILL)" in said
    steps = words[words.index("steps") + 1]
    assert words[-2:] == [f"({steps},", f"{steps})"]
    assert not list(logs.glob(".*"))
