"""What the differences that workers send change on a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfps.runtime.message.wire import count_name, gradient_of
from tfps.runtime.server.server_optimizer_call import ServerOptimizerCall


class DeltaCall(ServerOptimizerCall):
    """Takes a period's difference over; workers have run the optimizers.

    Asynchronous differences are divided by the number of workers, as those all start from about
    the same parameters; what a round has averaged comes as of one worker. Under elastic averaging
    a worker sends its parameters, and the server moves towards them.

    Source: for the division, Geo-SGD as in Paddle; for elastic averaging, Zhang, Choromanska and
    LeCun, "Deep Learning with Elastic Averaging SGD", NeurIPS 2015.
    """

    def _update(self, tensors: Mapping[str, tf.Tensor], workers: Any, **options: Any) -> None:
        elasticity = self.optimizer.elasticity
        for native in self.wire.gradients.natives:
            sent = tensors[gradient_of(native)]
            if elasticity is None:
                change = sent / tf.cast(tf.maximum(workers, 1), sent.dtype)
            else:
                change = tf.cast(elasticity, sent.dtype) * (sent - native.read_value())
            native.assign_add(change, read_value=False)
        for count in self.wire.counts:
            increase = tf.round(tensors[count_name(count)])
            count._value.assign_add(tf.cast(increase, count._value.dtype), read_value=False)
