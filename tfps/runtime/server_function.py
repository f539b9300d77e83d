"""Functions that run on a parameter server: no captures, every resource opened by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.server_variable import tracing_server_function
from tfps.bridge.step_scope import outside_the_step


def server_function(
    function: Callable[..., Sequence[tf.Tensor]], *, device: str, signature: list[tf.TensorSpec]
) -> tf.types.experimental.ConcreteFunction:
    """Trace a function for one server.

    Raises:
        RuntimeError: the function captured something; it would travel with every request.
    """

    def opened_by_name(*arguments: tf.Tensor) -> Sequence[tf.Tensor]:
        with tracing_server_function(device):
            return function(*arguments)

    with outside_the_step(), private.placed_on(device):
        concrete = tf.function(
            opened_by_name, input_signature=signature, autograph=False
        ).get_concrete_function()
    if concrete.captured_inputs:
        raise RuntimeError(
            f"a function for {device} captured {concrete.captured_inputs}; expected every resource "
            "to be opened by name inside it"
        )
    return concrete


class ControlCall:
    """A small function of one server that the coordinator calls now and then.

    Args:
        function: returns a list of tensors.
        device: the server.
        signature: of its arguments; at least one, because a `RemoteCall` needs one.
    """

    def __init__(
        self,
        function: Callable[..., Sequence[tf.Tensor]],
        *,
        device: str,
        signature: list[tf.TensorSpec],
    ) -> None:
        concrete = server_function(function, device=device, signature=signature)
        output_types = [output.dtype for output in concrete.outputs]

        def call(*arguments: tf.Tensor) -> Any:
            return tf.raw_ops.RemoteCall(
                target=device, args=list(arguments), Tout=output_types, f=concrete
            )

        with tf.init_scope():
            self._call = tf.function(
                call, input_signature=signature, autograph=False
            ).get_concrete_function()
        self._types = [spec.dtype for spec in signature]

    def __call__(self, *arguments: Any) -> list[Any]:
        """Call and wait; arrays come back."""
        with tf.init_scope():
            tensors = [
                tf.constant(argument, dtype)
                for argument, dtype in zip(arguments, self._types, strict=True)
            ]
            return [output.numpy() for output in self._call(*tensors)]
