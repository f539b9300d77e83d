"""A parameter server of one process: variables on this machine, functions called directly."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfps.optimizers.server_update import ServerUpdate
from tfps.optimizers.slabs import OptimizerCall, create, layouts_for
from tfps.optimizers.whole_model import for_whole_model
from tfps.runtime.server_function import server_function
from tfps.runtime.storage import Storage
from tfps.runtime.wire import parts_of
from tfps.transport.layout import Layout
from tfps.transport.packing import pack, unpack

DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"
_numbers = itertools.count()


class LocalServer:
    """Storage and updates as a strategy makes them, without a cluster."""

    def __init__(self) -> None:
        self.storage = Storage(container=f"test_{next(_numbers)}", number_of_servers=1)

    def variable(self, value: Any, *, name: str, **options: Any) -> Any:
        """A Keras variable on the server."""

        def creator(_: Any, **kwargs: Any) -> Any:
            return self.storage.create_variable(
                kwargs["initial_value"],
                device=DEVICE,
                dtype=kwargs["dtype"],
                name=kwargs["name"],
                trainable=kwargs["trainable"],
            )

        with tf.variable_creator_scope(creator):
            return keras.Variable(np.asarray(value), name=name, **options)

    def lay_out(self, *calls: tuple[Any, Sequence[Any]]) -> list[tuple[str, ...]]:
        """Make the slabs that optimizer calls ask for; answers the names in each new one."""
        layouts = layouts_for([OptimizerCall(*call) for call in calls])
        for layout, variables in layouts:
            create(layout, variables, storage=self.storage, name="slab")
        self.storage.collect()
        return [tuple(v.name for v in variables) for _, variables in layouts]

    def push(self, optimizer: Any, variables: Sequence[Any]) -> Callable[[Any], list[np.ndarray]]:
        """A function that sends one gradient per variable and answers the new values."""
        update = ServerUpdate(
            optimizer, storage=self.storage, strategy=tf.distribute.get_strategy()
        )
        parts = parts_of(variables)
        request = Layout.of(parts.entries(gradients=True, of_server=False))
        server_request = Layout.of(parts.entries(gradients=True, of_server=True))

        def serve(payload: tf.Tensor) -> list[tf.Tensor]:
            tensors = unpack(server_request, payload)
            gradients = {
                n.shared_name: tensors[f"gradient of {n.shared_name}"] for n in parts.natives
            }
            update.apply(gradients, device=DEVICE, staleness=tf.constant(0, tf.int64))
            values = {native.shared_name: native.read_value() for native in parts.natives}
            return [pack(parts.server_layout, values)]

        served = server_function(serve, device=DEVICE, signature=[tf.TensorSpec([None], tf.uint8)])

        def send(gradients: Sequence[Any]) -> list[np.ndarray]:
            tensors = for_whole_model(
                optimizer,
                [tf.convert_to_tensor(g) for g in gradients],
                variables=variables,
                value_of=lambda variable: variable._value,
            )
            named = {
                f"gradient of {v._value.shared_name}": g
                for v, g in zip(variables, tensors, strict=True)
            }
            (reply,) = served(pack(request, named))
            values = unpack(parts.layout, reply)
            return [values[v._value.shared_name].numpy() for v in variables]

        return send
