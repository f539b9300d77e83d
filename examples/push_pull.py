"""A regression with pull and push alone, no Keras: run it with `tfps run examples/push_pull.py`.

A worker pulls the parameters, computes a gradient on its data, and pushes it; the servers subtract
it. Steps of several workers may overlap: each push says how many updates it came too late.
"""

import tensorflow as tf

import tfps

TRUE_W, TRUE_B = [2.0, -3.0, 0.5], 1.25
LEARNING_RATE, STEPS = 0.1, 200

strategy = tfps.ParameterServerStrategy()
coordinator = tfps.ClusterCoordinator(strategy)

with strategy.scope():
    w = tf.Variable(tf.zeros([3]), name="w")
    b = tf.Variable(0.0, name="b")


@tf.function
def step() -> tf.Tensor:
    x = tf.random.normal([32, 3])
    y = tf.linalg.matvec(x, TRUE_W) + TRUE_B

    values, version = strategy.pull(["w", "b"])
    with tf.GradientTape() as tape:
        tape.watch(values)
        loss = tf.reduce_mean((tf.linalg.matvec(x, values["w"]) + values["b"] - y) ** 2)
    gradients = tape.gradient(loss, values)
    scaled = {name: LEARNING_RATE * gradient for name, gradient in gradients.items()}
    version, staleness = strategy.push(scaled, version)
    return staleness


late = [coordinator.schedule(step) for _ in range(STEPS)]
coordinator.join()

values, version = strategy.pull()
print("w", values["w"].round(3), "b", values["b"].round(3))
print(f"{sum(int(r.fetch()) > 0 for r in late)} of {STEPS} gradients met newer parameters")
assert abs(values["w"] - TRUE_W).max() < 0.01, values
