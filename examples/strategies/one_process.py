"""One process: Keras's `fit`. The other scripts of this folder are this one, changed.

python examples/strategies/one_process.py
"""

import keras
from reference_job import BATCH_SIZE, Job


def main():
    job = Job.from_arguments()
    data = job.data
    model = job.build(keras)
    model.compile(job.optimizer(keras), job.loss(keras), metrics=["accuracy"])
    model.fit(
        data.x_train,
        data.y_train,
        batch_size=BATCH_SIZE,
        epochs=job.epochs,
        verbose=0,
        callbacks=[job.callback(keras)],
    )
    job.report()


if __name__ == "__main__":
    main()
