"""Decodes parameters that servers send as differences to earlier values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.runtime.message.coding import CodedVector
from tfps.runtime.server.delta_encoder import iter_delta_vectors
from tfps.runtime.server.half import ServerHalf
from tfps.transport.packing import unpack


class DeltaDecoder:
    """Adds differences to earlier values, with the same bits as the servers.

    The worker's copies cannot keep these values: a step may change them, and local steps do. They
    are kept during the worker's closure run, which begins with full values.

    Args:
        servers: the program's functions on each server.

    Attributes:
        held: the variables with the worker's values, by (optimizer call, coded vector).
    """

    def __init__(self, servers: Sequence[ServerHalf]) -> None:
        self._servers = servers
        self.held: dict[tuple[int, str], Any] = {
            (number, each.name): private.create_anonymous_variable(
                shape=[each.items], dtype=tf.float32
            )
            for server in servers
            for number, wire in enumerate(server.wires)
            for each in iter_delta_vectors(wire)
        }

    def begin(self, payloads: Sequence[tf.Tensor]) -> None:
        """Store the full values from the payloads of all parameters.

        Args:
            payloads: by server.
        """
        for server, payload in zip(self._servers, payloads, strict=True):
            for number, wire in enumerate(server.wires):
                for each in iter_delta_vectors(wire):
                    tensors = unpack(server.parameter_layout, payload)
                    vector = each.build_received_vector(tensors)
                    self.held[number, each.name].assign(vector, read_value=False)

    def decode_reply(
        self, number: int, coded: CodedVector, data: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Decode the new values, by name, from a reply to a push.

        Args:
            number: the index of the optimizer call.
            coded: the coded vector.
            data: the bytes of its difference.
        """
        held = self.held[number, coded.name]
        vector = held.read_value() + coded.decode(data)
        held.assign(vector, read_value=False)
        return coded.split_vector(vector)
