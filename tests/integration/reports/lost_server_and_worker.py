"""A server and a worker are killed and started again at the same time, then an eager assignment.

It raised `AbortedError: Unable to find a context_id`. No process can lose a server, so what is
expected is the error of a lost server. Each turn is a process of its own.
"""

from __future__ import annotations

import sys

from tests.harness.command import run_command
from tests.integration.reports.report import Report

TURNS = 4
SCRIPT = """
import sys, threading, time
import keras, tensorflow as tf, tfps

workers, order = int(sys.argv[1]), sys.argv[2].split()
cluster = tfps.LocalCluster(workers=workers, ps=1)
strategy = tfps.ParameterServerStrategy(cluster.cluster_resolver)
coordinator = tfps.ClusterCoordinator(strategy)
with strategy.scope():
    goes_on = keras.Variable(True, dtype="bool", trainable=False)
    weight, optimizer = keras.Variable([0.0]), keras.optimizers.SGD(1.0)
    optimizer.build([weight])
step = tf.function(lambda: strategy.run(lambda: optimizer.apply([tf.ones([1])], [weight])))
for _ in range(3000):
    coordinator.schedule(step)

def start_again(task):
    cluster.kill(task, 0)
    time.sleep(1)
    cluster.restart(task, 0)

threads = [threading.Thread(target=start_again, args=(task,)) for task in ("worker", "ps")]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
uses = {"assign": lambda: goes_on.assign(False), "join": coordinator.join}
for use in order:
    try:
        uses[use]()
        print(use, "returned")
    except tf.errors.OpError as error:
        print(use, type(error).__name__)
"""


def compare(report: Report) -> None:
    for turn in range(TURNS):
        workers, order = 1 + turn % 2, "assign join" if turn < 2 else "join assign"
        command = [sys.executable, "-c", SCRIPT, str(workers), order]
        result = run_command(command, deadline_s=120, environment={"TF_CONFIG": None})
        report.line(
            f"{workers} workers",
            expected=[f"{use} UnavailableError" for use in order.split()],
            got=result.stdout.splitlines() or result.stderr[-300:],
        )
