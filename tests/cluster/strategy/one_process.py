"""A program that is chief, worker and server at once, as TensorFlow's own tests and tutorial are.

TensorFlow cannot stop a server, so this is a process of its own. It prints what it counted.
"""

from __future__ import annotations

import json

import keras
import numpy as np
import tensorflow as tf

import tfps
from tests.cluster.counting import UnitGradients, mean_output
from tfps.cluster import lease_ports

JOBS = {"worker": 2, "ps": 2}
STEPS = 12


def _start_servers() -> dict[str, list[str]]:
    with lease_ports(sum(JOBS.values())) as lease:
        ports = iter(lease.ports)
        jobs = {name: [f"localhost:{next(ports)}" for _ in range(JOBS[name])] for name in JOBS}
    options = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=8)
    spec = tf.train.ClusterSpec(jobs)
    for name, addresses in jobs.items():
        for index in range(len(addresses)):
            tf.distribute.Server(
                spec, job_name=name, task_index=index, protocol="grpc", config=options
            )
    return jobs


if __name__ == "__main__":
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(_start_servers()), rpc_layer="grpc"
    )
    # Twice: what the first strategy registers in this process must not make its servers tfps's own.
    for _ in range(2):
        strategy = tfps.ParameterServerStrategy(resolver)
        coordinator = tfps.ClusterCoordinator(strategy)
        with strategy.scope():
            total = tf.Variable(0)
            model = keras.Sequential([keras.Input((1,)), UnitGradients()])
            model.compile(keras.optimizers.SGD(-1.0), mean_output)
        add = tf.function(lambda total=total: total.assign_add(1))
        for _ in range(STEPS):
            coordinator.schedule(add)
        coordinator.join()
        data = np.zeros([STEPS * 2, 1], "float32")
        model.fit(data, data, batch_size=2, verbose=0)
        found = {"total": int(total.numpy()), "weights": [float(w) for w in model.get_weights()]}
        print("found", json.dumps({**found, "transports": strategy.stats().transports}))
        strategy.close()
