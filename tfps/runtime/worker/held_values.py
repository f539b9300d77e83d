"""Parameters that come as differences: what servers have made the worker hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.runtime.message.coding import CodedVector
from tfps.runtime.server.half import ServerHalf
from tfps.runtime.server.sent_values import differences
from tfps.transport.packing import unpack


class HeldValues:
    """Adds differences to what came before, as the servers do, bit by bit.

    The worker's copies are no place for it: a step may change them, and local steps do. It is kept
    as long as the worker's visit, at the begin of which everything comes.

    Args:
        servers: the program's functions on each server.
    """

    def __init__(self, servers: Sequence[ServerHalf]) -> None:
        self._servers = servers
        self._held: dict[tuple[int, str], Any] = {
            (number, each.name): private.anonymous_variable(shape=[each.items], dtype=tf.float32)
            for server in servers
            for number, wire in enumerate(server.wires)
            for each in differences(wire)
        }

    def begin(self, payloads: Sequence[tf.Tensor]) -> None:
        """Take what came with all parameters.

        Args:
            payloads: by server.
        """
        for server, payload in zip(self._servers, payloads, strict=True):
            for number, wire in enumerate(server.wires):
                for each in differences(wire):
                    tensors = unpack(server.parameter_layout, payload)
                    vector = each.received_vector(tensors)
                    self._held[number, each.name].assign(vector, read_value=False)

    def arrived(self, number: int, coded: CodedVector, data: tf.Tensor) -> dict[str, tf.Tensor]:
        """The new values, by name, of what a push was answered with.

        Args:
            number: of the optimizer call.
            coded: which of its values.
            data: the bytes of their difference.
        """
        held = self._held[number, coded.name]
        vector = held.read_value() + coded.decoded(data)
        held.assign(vector, read_value=False)
        return coded.tensors_of(vector)
