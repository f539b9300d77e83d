"""`tfps.ParameterServerStrategy` in one of its modes.

tfps run --workers 2 --ps 1 examples/strategies/tfps_parameter_servers.py --mode synchronous
"""

import keras
from reference_job import BATCH_SIZE, Job

import tfps

MODES = {
    "asynchronous": {"consistency": tfps.Asynchronous()},
    "synchronous": {"consistency": tfps.Synchronous()},
    "all_reduce": {
        "consistency": tfps.Synchronous(),
        # Workers add up the gradients of dense weights; tables stay on servers.
        "placement": tfps.placement.ByPath(
            {"embedding": "least_loaded"}, otherwise=tfps.placement.AllReduce()
        ),
    },
    "backup_worker": {"consistency": tfps.Synchronous(backup_workers=1)},
    "bounded": {"consistency": tfps.BoundedStaleness(bound_steps=4)},
    "local_steps": {"consistency": tfps.LocalSteps(period_steps=16)},
}


def main():
    job = Job.from_arguments(modes=list(MODES))
    data = job.data
    strategy = tfps.ParameterServerStrategy(**MODES[job.mode])
    with strategy.scope():
        model = job.build(keras)
        optimizer = job.optimizer(keras)
        if job.model == "large":  # a server updates the rows of a batch, and passes over no other
            optimizer = tfps.optimizers.SparseUpdates(optimizer)
        model.compile(optimizer, job.loss(keras), metrics=["accuracy"])
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
