"""Shows which task applies an update: `tfps run --ps 2 examples/who_applies_the_update.py`.

Prints every operation that changes a variable when a worker pushes its gradients, with the device
that it runs on, read from the traced functions of a real `fit`. With `synchronous` behind it: there
the push adds to a sum, and the one that completes a round applies the mean.
"""

import sys
from collections import Counter

import keras
import numpy as np

import tfps

mode = sys.argv[1] if len(sys.argv) > 1 else "asynchronous"
strategy = tfps.ParameterServerStrategy(consistency=mode)
with strategy.scope():
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(16, name="hidden"), keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.Adam(0.01), "mse")

random = np.random.default_rng(0)
x = random.normal(size=(640, 8)).astype("float32")
model.fit(x, x.sum(axis=1), batch_size=32, epochs=1, verbose=0)

print("Where the variables live:")
print(strategy.plan)
print(f"\nWhat a push changes, and where ({mode}):")
operations = Counter(strategy.update_operations())
for operation, count in sorted(operations.items()):
    print(f"  {operation.device}  {operation.operation:<22} {operation.variable} x{count}")

devices = {operation.device for operation in operations}
print(
    f"\n{sum(operations.values())} update operations, all on parameter servers: "
    f"{all('/job:ps' in device for device in devices)}"
)
stats = strategy.stats()
print(
    f"{stats.updates_applied} updates by {len(stats.worker_steps)} workers, "
    f"{stats.worker_steps} steps each, {model.optimizer.iterations.numpy()} iterations"
)
