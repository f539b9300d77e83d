"""A parameter server of one process: variables on this machine, functions called directly."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfps.bridge.functions.server_function import mask_assignments, trace_server_function
from tfps.bridge.step_scope import read_current_value
from tfps.optimizers.loss_scaling import get_loss_scale, unscale_gradient
from tfps.optimizers.optimizer_call import OptimizerCall
from tfps.optimizers.server_update import ServerUpdate, UpdateContext
from tfps.optimizers.slabs import create_slab, plan_slabs
from tfps.optimizers.whole_model import prepare_gradients
from tfps.runtime.coordinator.storage import Storage
from tfps.runtime.message.wire import group_by_slab
from tfps.transport.layout import Layout
from tfps.transport.packing import pack, unpack

DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"
_numbers = itertools.count()

SHAPES = {"kernel": (5, 3), "bias": (3,), "scale": ()}


def initial_values() -> list[np.ndarray]:
    """Weights to begin with, one of each of `SHAPES`."""
    return _drawn(0)


def gradients_of(step: int) -> list[np.ndarray]:
    """Gradients for them, other ones in each step."""
    return _drawn(10 + step)


def _drawn(seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.normal(size=shape).astype("float32") for shape in SHAPES.values()]


class LocalServer:
    """Storage and updates as a strategy makes them, without a cluster."""

    def __init__(self) -> None:
        self.storage = Storage(container=f"test_{next(_numbers)}", servers=(DEVICE,))

    def variable(self, value: Any, *, name: str, layer: str = "", **options: Any) -> Any:
        """A Keras variable on the server, of a layer if one is named."""

        def creator(_: Any, **kwargs: Any) -> Any:
            return self.storage.create_variable(
                kwargs["initial_value"],
                device=DEVICE,
                dtype=kwargs["dtype"],
                name=kwargs["name"],
                path=f"{layer}/{name}" if layer else None,
                trainable=kwargs["trainable"],
            )

        of_layer = keras.name_scope(layer) if layer else contextlib.nullcontext()
        with of_layer, tf.variable_creator_scope(creator):
            return keras.Variable(np.asarray(value), name=name, **options)

    def lay_out(self, *calls: tuple[Any, Sequence[Any]]) -> list[tuple[str, ...]]:
        """Make the slabs that optimizer calls ask for; return the names in each new one."""
        layouts = plan_slabs(
            [OptimizerCall(by, tuple(variables)) for by, variables in calls], servers=(DEVICE,)
        )
        for layout, variables in layouts:
            create_slab(layout, variables, storage=self.storage)
        self.storage.collect()
        return [tuple(v.name for v in variables) for _, variables in layouts]

    def push(
        self,
        optimizer: Any,
        variables: Sequence[Any],
        *,
        workers: int = 0,
        update: ServerUpdate | None = None,
        masked: bool = False,
    ) -> Any:
        """A function that sends one gradient per variable and returns the new values.

        A masked one is one kernel, and does nothing with gradients that do not count.

        With workers it takes a worker's index, and the version that the gradients come from: one
        of the worker's own pushes (0 is how it began), by default the last, and how many workers
        take part, by default all. It has the ``update``, for another push of the same optimizer,
        and ``begin``, with which a worker enters anew.
        """
        update = update or ServerUpdate(
            optimizer, storage=self.storage, strategy=tf.distribute.get_strategy(), workers=workers
        )
        version = tf.constant(0, tf.int64)
        newest_versions = dict.fromkeys(range(workers), 0)
        shards = group_by_slab(variables)
        request = Layout.from_entries(shards.entries(gradients=True, for_server=False))
        server_request = Layout.from_entries(shards.entries(gradients=True, for_server=True))

        def apply_if_fresh(
            gradients: dict[str, tf.Tensor], context: UpdateContext, counts: tf.Tensor
        ) -> None:
            context = replace(context, may_be_compiled=False, rate=update.trace_learning_rate())

            @tf.function(jit_compile=True, autograph=False)
            def kernel(gradients: dict[str, tf.Tensor], counts: tf.Tensor) -> None:
                with mask_assignments(counts):
                    update.apply(gradients, context)

            kernel(gradients, counts)

        def serve(
            payload: tf.Tensor, worker: tf.Tensor, versions: tf.Tensor, counts: tf.Tensor
        ) -> list[tf.Tensor]:
            tensors = unpack(server_request, payload)
            gradients = {
                n.shared_name: tensors[f"gradient of {n.shared_name}"] for n in shards.natives
            }
            sender = worker if workers else None
            staleness, present = versions[1] - versions[0], versions[2]
            context = UpdateContext(DEVICE, staleness, sender, workers=present)
            if masked:
                apply_if_fresh(gradients, context, counts)
            else:
                update.apply(gradients, context)
            values = {native.shared_name: native.read_value() for native in shards.natives}
            return [pack(shards.server_layout, values)]

        number = tf.TensorSpec([], tf.int64)
        served = trace_server_function(
            serve,
            device=DEVICE,
            signature=[
                tf.TensorSpec([request.size_bytes], tf.uint8),
                number,
                tf.TensorSpec([3], tf.int64),
                tf.TensorSpec([], tf.bool),
            ],
        )

        def send(
            gradients: Sequence[Any],
            worker: int = 0,
            base: int | None = None,
            *,
            counts: bool = True,
            present: int | None = None,
        ) -> list[np.ndarray]:
            nonlocal version
            base = newest_versions.get(worker, int(version)) if base is None else base
            tensors = prepare_gradients(
                optimizer,
                [tf.convert_to_tensor(g) for g in gradients],
                variables=variables,
                read=read_current_value,
            )
            dynamic = get_loss_scale(optimizer)
            scale = None if dynamic is None else read_current_value(dynamic)
            named = {
                f"gradient of {v.value.shared_name}": g
                if scale is None
                else unscale_gradient(g, scale)
                for v, g in zip(variables, tensors, strict=True)
            }
            sender = tf.constant(worker, tf.int64)
            order = [tf.constant(base, tf.int64), version, workers if present is None else present]
            (reply,) = served(pack(request, named), sender, order, tf.constant(counts))
            version += 1
            newest_versions[worker] = int(version)
            values = unpack(shards.layout, reply)
            return [values[v.value.shared_name].numpy() for v in variables]

        def begin(worker: int) -> None:
            newest_versions[worker] = int(version)

        send.begin, send.update = begin, update  # type: ignore[attr-defined]
        return send


def served(make: Callable[[], Any], *, in_slabs: bool) -> tuple[LocalServer, Any, list[Any]]:
    """A server with variables of `SHAPES` and an optimizer that is built for them."""
    server = LocalServer()
    variables = [
        server.variable(value, name=name)
        for name, value in zip(SHAPES, initial_values(), strict=True)
    ]
    optimizer = make()
    optimizer.build(variables)
    if in_slabs:
        assert len(server.lay_out((optimizer, variables))) == 1
    return server, optimizer, variables
