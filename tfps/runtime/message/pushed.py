"""What the servers have answered to one push, together."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

NOT_MEASURED = -1


class Pushed(NamedTuple):
    """The servers' answers to one push."""

    payloads: list[tf.Tensor]
    versions: list[tf.Tensor]
    accepted: tf.Tensor
    next_ticket: tf.Tensor
    microseconds: tf.Tensor
    next_batches: Any = 1  # how many tickets the next one stands for
