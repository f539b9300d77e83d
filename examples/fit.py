"""Keras `fit` on parameter servers: the two marked lines are all that a script has to change.

tfps run --workers 2 --ps 1 examples/fit.py
"""

import keras
from fashion_mnist import data

import tfps

EPOCHS = 3


def main():
    images = data.load(source="subset")

    strategy = tfps.ParameterServerStrategy()  # added: reads TF_CONFIG, which `tfps run` sets
    with strategy.scope():  # added: variables made here live on the parameter servers
        model = keras.Sequential(
            [
                keras.Input((28, 28, 1)),
                keras.layers.Rescaling(1 / 255),
                keras.layers.Flatten(),
                keras.layers.Dense(128, activation="relu"),
                keras.layers.Dropout(0.2),
                keras.layers.Dense(10),
            ]
        )
        model.compile(
            optimizer="adam",
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )

    model.fit(images.x_train, images.y_train, batch_size=64, epochs=EPOCHS)
    loss, accuracy = model.evaluate(images.x_test, images.y_test, batch_size=512, verbose=0)
    print(f"test accuracy {accuracy:.3f}, test loss {loss:.3f}")
    print(f"{strategy.stats().updates_applied} updates applied by the parameter server")


if __name__ == "__main__":
    main()
