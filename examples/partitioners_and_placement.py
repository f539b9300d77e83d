"""Choose what each server holds: partitioners divide variables, a placement assigns them.

tfps run --workers 2 --ps 2 examples/partitioners_and_placement.py

Job files say the same with [partitioner] and [placement], and `tfps plan` shows it before anything
starts.
"""

import keras
import numpy as np

import tfps
from tfps.partitioners import Balanced, ByPath, RowShuffle

WORDS, WIDTH = 20_000, 32


def make_model():
    """A small model of text: what is large in it is the table of its words."""
    model = keras.Sequential(
        [
            keras.Input((10,), dtype="int32"),
            keras.layers.Embedding(WORDS, WIDTH, name="words"),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(64, activation="relu", name="hidden"),
            keras.layers.Dense(1, name="answer"),
        ]
    )
    model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def main():
    strategy = tfps.ParameterServerStrategy(
        # Rows of the table are shuffled, so that frequent words are on both servers. Of the rest,
        # what is large is divided evenly.
        variable_partitioner=ByPath({"words": RowShuffle()}, otherwise=Balanced()),
        # The last layer goes to server 0; everything else to the server with the fewest bytes.
        placement=tfps.placement.ByPath({"answer": 0}, otherwise=tfps.placement.LeastLoaded()),
    )
    with strategy.scope():
        model = make_model()

    random = np.random.default_rng(0)
    sentences = random.integers(0, WORDS, size=(6400, 10)).astype("int32")
    labels = (sentences < WORDS // 2).mean(axis=1) > 0.5
    model.fit(sentences, labels.astype("float32"), batch_size=64, epochs=2, verbose=2)

    print(strategy.plan)
    # Keras sees whole tensors in their logical order, however they are divided.
    print("the table as Keras sees it:", model.get_layer("words").get_weights()[0].shape)


if __name__ == "__main__":
    main()
