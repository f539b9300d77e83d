"""`strategy.pull` and `strategy.push`: the two primitives of a parameter server, for everybody."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closure_error import lost_servers_as_unavailable
from tfps.bridge.server_variable import ServerVariable
from tfps.bridge.shards import all_shards
from tfps.bridge.step_scope import current_step, refuse_later
from tfps.consistency.modes import lets_workers_wait
from tfps.errors import ConfigError, UnsupportedError
from tfps.optimizers.optimizer_call import OptimizerCall
from tfps.optimizers.row_updates import refuse_to_densify
from tfps.optimizers.server_update import ServerUpdate, UpdateContext
from tfps.optimizers.whole_model import for_whole_model
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.message.payload import decode, encode
from tfps.runtime.message.wire import gradient_name, in_shards
from tfps.runtime.program.program import Program
from tfps.runtime.server.admission import Anyone
from tfps.runtime.server.function_half import FunctionHalf
from tfps.runtime.worker.exchange import column_of, payloads_of, requests, timed_exchange
from tfps.runtime.worker.exchange_times import ExchangeTimes
from tfps.runtime.worker.worker_index import caller_of_call
from tfps.transport.message import Kind, Reply

# What crosses `pull` and `push`: arrays on the coordinator, tensors in a scheduled function.
Tensor: TypeAlias = tf.Tensor | np.ndarray[Any, Any]


class NamedParameter:
    """A variable on a server under the name that the user knows it by.

    Args:
        path: of a Keras variable, or the name of a raw one.
        variable: the Keras variable, or the raw one.
    """

    def __init__(self, path: str, variable: Any) -> None:
        native = getattr(variable, "_value", variable)
        self.path = path
        self.keras_variable = variable if native is not variable else None
        self._value = (
            native if isinstance(native, ServerVariable) else ServerVariable.attach(native)
        )
        self.shape, self.trainable = tuple(self._value.shape), native.trainable


class Descent:
    """The update of a push without an optimizer: subtract the gradient.

    Args:
        parameters: what is pushed.
    """

    def __init__(self, parameters: Sequence[NamedParameter]) -> None:
        self._trainable_variables = list(parameters)

    def apply(self, gradients: Mapping[str, tf.Tensor], context: UpdateContext) -> None:
        natives = [shard._value for shard in all_shards(self._trainable_variables)]
        slabs = [native.slab for native in natives if native.slab is not None]
        for name, native in {each.shared_name: each for each in (*natives, *slabs)}.items():
            if name in gradients and native.device == context.device:
                native.assign_sub(gradients[name], read_value=False)


class PrimitiveHalf(FunctionHalf):
    """Takes each push that comes: nobody knows which of them are made once more."""

    def admission(self, number: int) -> Anyone:
        return Anyone()


class Primitives:
    """Pull and push by name, on the coordinator and inside functions that workers run.

    Args:
        runtime: the job.
        update_of: the server-side update of a Keras optimizer.
        lay_out: lays out what a program trains, before it is traced.
        updates: all server-side updates that there are.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        update_of: Callable[[Any], Any],
        lay_out: Callable[[Program], Any],
        updates: Callable[[], Sequence[ServerUpdate]],
    ) -> None:
        self._runtime, self._update_of, self._lay_out = runtime, update_of, lay_out
        self._updates = updates
        self._known: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self._compiled: dict[Any, tuple[list[NamedParameter], list[FunctionHalf]]] = {}
        self._eager: dict[Any, Any] = {}
        self._layouts = runtime.layouts

    def register(self, name: str, variable: Any) -> None:
        """Note a variable that was created in the strategy's scope."""
        self._known[name.removesuffix(":0")] = variable

    @property
    def known(self) -> Mapping[str, Any]:
        """The variables that were created in the strategy's scope, as long as they live."""
        return self._known

    @property
    def names(self) -> list[str]:
        """The names that can be pulled."""
        return sorted(self._known)

    def pull(self, names: Sequence[str] | None = None) -> tuple[dict[str, Tensor], Tensor]:
        """Read parameters: one request per server, all of a server's from one moment.

        Args:
            names: paths of Keras variables or names of raw ones; None: all of the scope.

        Returns:
            The values by name, and the version (int64, one number per server) that a later push
            shall name: arrays on the coordinator, tensors in a scheduled function.

        Raises:
            ConfigError: a name that no variable of the scope has.
            tf.errors.UnavailableError: a server is lost.

        Example:

        ```python
        values, version = strategy.pull(["w"])
        ```
        """
        chosen = tuple(self.names if names is None else names)
        parameters, servers = self._for(chosen, None)
        if tf.executing_eagerly():
            call = self._eagerly(("pull", chosen), lambda: self._pull(*self._for(chosen, None)))
            with lost_servers_as_unavailable():
                values, version = call()
            return {name: value.numpy() for name, value in values.items()}, version.numpy()
        return self._pull(parameters, servers, times=ExchangeTimes(self._runtime))

    def push(
        self, gradients: Mapping[str, Tensor], version: Tensor, *, optimizer: Any = None
    ) -> tuple[Tensor, Tensor]:
        """Send gradients; each server applies its part as one atomic update.

        Args:
            gradients: by name, of the parameters' shapes.
            version: what the pull answered that the gradients were computed from.
            optimizer: a built Keras optimizer that applies them on the servers; None subtracts
                them: scale a gradient by your learning rate yourself.

        Returns:
            The new version, and the staleness: the most updates that any server had applied since
            the pull.

        Raises:
            ConfigError: a name that no variable of the scope has.
            UnsupportedError: in a scheduled function of a strategy whose workers wait for each
                other; on the coordinator it is an update by itself, whatever the mode. Or rows of a
                gradient for `tfps.optimizers.RowUpdates`.
            tf.errors.UnavailableError: a server is lost.

        Example:

        ```python
        version, staleness = strategy.push({"w": 0.1 * gradient}, version)
        ```
        """
        if current_step() is not None and lets_workers_wait(self._runtime.mode):
            refuse_later(
                UnsupportedError(
                    f"consistency={self._runtime.mode!r}: strategy.push() in a scheduled function "
                    "is applied at once, and would wait for no other worker. Call a Keras "
                    "optimizer in its place, or use tfps.Asynchronous()."
                )
            )
        chosen = tuple(gradients)
        key = ("push", chosen, id(optimizer))
        for name in chosen if optimizer is not None else ():
            refuse_to_densify(optimizer, gradients[name], self._known.get(name))
        tensors = [tf.convert_to_tensor(gradients[name]) for name in chosen]
        version = tf.cast(tf.convert_to_tensor(version), tf.int64)
        if tf.executing_eagerly():
            self._for(chosen, optimizer)  # variables move, if they do, before anything is traced
            call = self._eagerly(
                key, lambda v, *g: self._push(*self._for(chosen, optimizer), list(g), v)
            )
            with lost_servers_as_unavailable():
                new, staleness = call(version, *tensors)
            return new.numpy(), int(staleness)
        parameters, servers = self._for(chosen, optimizer)
        times = ExchangeTimes(self._runtime)
        return self._push(parameters, servers, tensors, version, times=times)

    def apply(self, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """What `optimizer.apply(gradients, variables)` means when it is called on the coordinator.

        Args:
            optimizer: built.
            gradients: of the variables' shapes; None for a variable that has none.
            variables: of Keras, on servers.
        """
        pairs = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
        for gradient, variable in pairs:
            refuse_to_densify(optimizer, gradient, variable)
        tensors = [tf.convert_to_tensor(gradient) for gradient, _ in pairs]
        chosen = [variable for _, variable in pairs]
        key = (tuple(id(variable) for variable in chosen), id(optimizer))

        def compiled() -> tuple[list[Any], list[FunctionHalf]]:
            self._forget_outdated()
            if key not in self._compiled:
                self._compile(key, chosen, optimizer)
            return self._compiled[key]

        compiled()  # variables move, if they do, before anything is traced
        call = self._eagerly(
            ("apply", *key), lambda version, *g: self._push(*compiled(), list(g), version)
        )
        versions = [server.cells()[server.layout.VERSION] for server in self._runtime.servers]
        with lost_servers_as_unavailable():
            call(tf.constant(versions, tf.int64), *tensors)

    def _eagerly(self, key: Any, function: Any) -> Any:
        self._forget_outdated()
        if key not in self._eager:
            self._eager[key] = tf.function(function, autograph=False)
        return self._eager[key]

    def _for(
        self, names: tuple[str, ...], optimizer: Any
    ) -> tuple[list[NamedParameter], list[FunctionHalf]]:
        key = (names, id(optimizer))
        self._forget_outdated()
        if key not in self._compiled:
            unknown = [name for name in names if name not in self._known]
            if unknown:
                raise ConfigError(
                    f"the strategy's scope has no variable {unknown}; it has {self.names}"
                )
            parameters: list[Any] = [NamedParameter(name, self._known[name]) for name in names]
            by: Any = Descent(parameters)
            if optimizer is not None:
                parameters = [p.keras_variable for p in parameters]
                by = optimizer
            self._compile(key, parameters, by)
        if not tf.executing_eagerly():
            private.keep_with_graph(self._compiled[key][1])
        return self._compiled[key]

    def _compile(self, key: Any, parameters: list[Any], by: Any) -> None:
        program = Program(
            name="primitives",
            step=lambda _: None,
            batch_spec=None,
            trains=True,
            variables=list(parameters),
            calls=[OptimizerCall(by, tuple(parameters))],
        )
        if not isinstance(by, Descent):
            self._lay_out(program)
            self._forget_outdated()
        servers: list[FunctionHalf] = [
            PrimitiveHalf(
                program,
                runtime=self._runtime,
                server=server,
                update_of=lambda o: o if isinstance(o, Descent) else self._update_of(o),
                updates=self._updates(),
                uses_replies=False,
            )
            for server in self._runtime.servers
        ]
        self._compiled[key] = (parameters, servers)

    def _forget_outdated(self) -> None:
        """Variables that moved are looked for in their new places."""
        self._runtime.refuse_if_closed()
        if self._layouts != self._runtime.layouts:
            self._layouts = self._runtime.layouts
            self._compiled.clear()
            self._eager.clear()

    def _pull(
        self,
        parameters: list[Any],
        servers: list[FunctionHalf],
        *,
        times: ExchangeTimes | None = None,
    ) -> tuple[Any, tf.Tensor]:
        calls = requests(servers, Kind.PULL, fields=caller_of_call(servers))
        replies, duration = timed_exchange(self._runtime.data_plane.carrier, calls)
        noted = [] if times is None else [times.has_pulled(duration)]  # on a worker
        layouts = [server.parameter_layout for server in servers]
        found = decode(layouts, payloads_of(replies), parameters)
        values = {parameter.path: value for parameter, value in found}
        with tf.control_dependencies(noted):  # a push that names the version tells of it
            return values, tf.stack(column_of(replies, Reply.VERSION))

    def _push(
        self,
        parameters: list[Any],
        servers: list[FunctionHalf],
        gradients: list[tf.Tensor],
        version: tf.Tensor,
        *,
        times: ExchangeTimes | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        optimizer = servers[0].program.calls[0].optimizer
        if not isinstance(optimizer, Descent):
            gradients = for_whole_model(
                optimizer,
                gradients,
                variables=parameters,
                value_of=lambda variable: variable._value,
            )
        named = {gradient_name(p): g for p, g in zip(parameters, gradients, strict=True)}
        cut = in_shards(parameters, lambda p: named[gradient_name(p)], name=gradient_name)
        with tf.control_dependencies([version]):
            told = {} if times is None else times.fields()
        calls = requests(
            servers,
            Kind.PUSH,
            {p: encode(server.wires[0], cut) for p, server in enumerate(servers)},
            versions=[version[p] for p in range(len(servers))],
            fields={**caller_of_call(servers), **told},
        )
        replies, duration = timed_exchange(self._runtime.data_plane.carrier, calls)
        noted = [] if times is None else [times.has_pushed(duration)]
        with tf.control_dependencies(noted):
            version = tf.stack(column_of(replies, Reply.VERSION))
        return version, tf.reduce_max(column_of(replies, Reply.STALENESS))
