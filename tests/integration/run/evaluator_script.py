"""One script for all tasks, as users write it: the task's type says what it does."""

import json
import os
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfps

FOLDER = Path(sys.argv[1])
CHECKPOINTS = FOLDER / "checkpoints"
EPOCHS = 3

random = np.random.default_rng(0)
x = random.normal(size=(96, 4)).astype("float32")
y = (x.sum(axis=1) > 0).astype("int32")


def make_model():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model


class Record(keras.callbacks.Callback):
    def __init__(self, name):
        super().__init__()
        self.path = FOLDER / name

    def write(self, logs):
        line = json.dumps({"iterations": int(self.model.optimizer.iterations), **logs})
        with self.path.open("a") as file:
            file.write(line + "\n")


class Evaluated(Record):
    def on_test_end(self, logs=None):
        self.write(logs)


class Trained(Record):
    """Saves each epoch in another way, and lets the evaluator follow, but for the last one."""

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 0:
            self.model.save_weights(CHECKPOINTS / "epoch-1.weights.h5")
        elif epoch == 1:
            self.model.save(CHECKPOINTS / "epoch-2.keras")
        else:
            checkpoint = tf.train.Checkpoint(model=self.model, optimizer=self.model.optimizer)
            manager = tf.train.CheckpointManager(checkpoint, str(CHECKPOINTS), max_to_keep=1)
            manager.save(checkpoint_number=3)
        self.write(self.model.evaluate(TEST_X, TEST_Y, verbose=0, return_dict=True))
        ends_at = time.monotonic() + 60
        while epoch + 1 < EPOCHS and time.monotonic() < ends_at:
            path = FOLDER / "evaluated"
            if path.exists() and len(path.read_text().splitlines()) > epoch:
                break
            time.sleep(0.05)


TEST_X, TEST_Y = x[64:], y[64:]

if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "evaluator":
    data = tf.data.Dataset.from_tensor_slices((TEST_X, TEST_Y)).batch(32)
    evaluator = tfps.SidecarEvaluator(
        make_model(), data, CHECKPOINTS, callbacks=[Evaluated("evaluated")]
    )
    evaluator.start()
else:
    strategy = tfps.ParameterServerStrategy()
    with strategy.scope():
        model = make_model()
    CHECKPOINTS.mkdir()
    callbacks = [Trained("trained")]
    model.fit(x[:64], y[:64], batch_size=8, epochs=EPOCHS, verbose=0, callbacks=callbacks)
