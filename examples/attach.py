"""Another process reads a job while it trains: its weights and counters, without its model.

tfps run --workers 2 --ps 1 examples/attach.py

Here the chief starts the reader. On real machines, start the same script by hand wherever the
servers can be reached: python examples/attach.py SERVER:PORT ...
"""

import json
import os
import subprocess
import sys
import time

import keras
import numpy as np
from fashion_mnist import data

import tfps

JOB = "night"
KERNEL = "clothes/logits/kernel"  # names are in job.names
LOOKS = 3


def read(servers):
    """Look at a job now and then; it does not notice."""
    with tfps.attach(JOB, servers) as job:
        seen = 0
        for _ in range(LOOKS):
            while job.stats().updates_applied < seen + 100:
                time.sleep(0.05)
            values, versions = job.pull([KERNEL])
            seen = int(max(versions))
            size = np.linalg.norm(values[KERNEL])
            print(f"after {seen} updates the last layer's weights have norm {size:.3f}", flush=True)


class UntilRead(keras.callbacks.Callback):
    """Ends the training once the reader has seen enough."""

    def __init__(self, reader):
        super().__init__()
        self.reader = reader

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = self.reader.poll() is not None


def train(servers):
    strategy = tfps.ParameterServerStrategy(job=JOB)
    with strategy.scope():
        layers = [
            keras.Input((28, 28, 1)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10, name="logits"),
        ]
        model = keras.Sequential(layers, name="clothes")
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])
    images = data.load(source="subset")
    with subprocess.Popen([sys.executable, __file__, *servers]) as reader:
        x, y = images.x_train, images.y_train
        model.fit(x, y, batch_size=64, epochs=100, callbacks=[UntilRead(reader)])
    if reader.returncode:
        sys.exit("the reader has failed")
    _, accuracy = model.evaluate(images.x_test, images.y_test, batch_size=512, verbose=0)
    print(f"test accuracy {accuracy:.4f}")
    strategy.close()  # the end of the job; without it, it would stay on the servers


if __name__ == "__main__":
    if sys.argv[1:]:
        read(servers=sys.argv[1:])
    else:
        train(servers=json.loads(os.environ["TF_CONFIG"])["cluster"]["ps"])
