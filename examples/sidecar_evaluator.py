"""An evaluator of its own: training goes on while each epoch's checkpoint is evaluated.

tfps run --workers 2 --ps 1 examples/sidecar_evaluator.py

On real machines, start the same script once more with `"task": {"type": "evaluator", "index": 0}`
in TF_CONFIG. A local cluster has no such task, so here the chief starts it.
"""

import json
import os
import subprocess
import sys
import tempfile

import keras
import tensorflow as tf
from fashion_mnist import data

import tfps

EPOCHS = 3
TF_CONFIG = json.loads(os.environ["TF_CONFIG"])


def make_model():
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model


def train(images, folder):
    strategy = tfps.ParameterServerStrategy()
    with strategy.scope():
        model = make_model()
    path = f"{folder}/epoch-{{epoch}}.weights.h5"
    checkpoints = keras.callbacks.ModelCheckpoint(path, save_weights_only=True)
    x, y = images.x_train, images.y_train
    model.fit(x, y, batch_size=64, epochs=EPOCHS, callbacks=[checkpoints])


def evaluate(images, folder):
    test_data = tf.data.Dataset.from_tensor_slices((images.x_test, images.y_test)).batch(512)
    tfps.SidecarEvaluator(
        make_model(),  # outside of any strategy's scope
        test_data,
        folder,
        max_evaluations=EPOCHS,
        callbacks=[keras.callbacks.TensorBoard(f"{folder}/logs")],
    ).start()


def start_evaluator(folder):
    config = {**TF_CONFIG, "task": {"type": "evaluator", "index": 0}}
    environment = {**os.environ, "TF_CONFIG": json.dumps(config)}
    return subprocess.Popen([sys.executable, __file__, folder], env=environment)


def main():
    images = data.load(source="subset")
    if TF_CONFIG["task"]["type"] == "evaluator":
        evaluate(images, folder=sys.argv[1])
        return
    folder = tempfile.mkdtemp(prefix="checkpoints-")  # on several machines: one that all share
    evaluator = start_evaluator(folder)
    train(images, folder)
    evaluator.wait()


if __name__ == "__main__":
    main()
