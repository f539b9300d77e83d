"""The loops that parameter servers run for their connections, in this process."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

import tfps
from tfps.bridge.named_functions import register_named_function
from tfps.runtime.coordinator.data_plane import build_service_graph
from tfps.runtime.coordinator.server_contents import ServedPlan
from tfps.transport import tokens
from tfps.transport.carrier import Message, ServerCall
from tfps.transport.data_server import NO_REQUEST
from tfps.transport.service_loop import CONNECTION_ENDED

DEADLINE_S = 60.0

_numbers = itertools.count(1)
_connections: dict[int, Connection] = {}


class Connection:
    """One connection of a worker, and the thread that serves it; one request at a time.

    Args:
        plan: what is served.
        loop: runs until the connection ends.
    """

    def __init__(self, plan: ServedPlan, loop: Callable[[int], Any]) -> None:
        self.plan, self._loop = plan, loop
        self._requests: queue.Queue[Any] = queue.Queue()
        self._replies: queue.Queue[Any] = queue.Queue()
        self._number = next(_numbers)
        _connections[self._number] = self
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def ask(self, arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Send a request, wait for the reply."""
        self._requests.put(arrays)
        reply = self._replies.get(timeout=DEADLINE_S)
        if isinstance(reply, Exception):
            raise reply
        return list(reply)

    def close(self) -> None:
        """End the loop, which has to be idle."""
        self._requests.put(None)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        del _connections[self._number]

    def _serve(self) -> None:
        try:
            self._loop(self._number)
        except tf.errors.OpError as error:
            self._replies.put(error)

    def turn(self, *reply: np.ndarray[Any, Any]) -> tuple[Any, ...]:
        """Pass on a reply and wait for a request, as `DataServer` does with sockets."""
        if reply[0].size:
            self._replies.put([array.copy() for array in reply])
        request = self._requests.get()
        if request is None:
            return np.int32(CONNECTION_ENDED), *NO_REQUEST
        position = self.plan.service.position(request[0].tolist(), payload_bytes=request[2].size)
        return np.int32(position), *request


class ServiceLoops:
    """A carrier to the loops of a strategy's servers; each exchange has a connection to itself.

    Args:
        strategy: of one process.
    """

    name = "service loops"

    def __init__(self, strategy: tfps.ParameterServerStrategy) -> None:
        self._contents = strategy.runtime.contents
        self._loops: dict[int, Callable[[int], Any]] = {}  # by the identity of the plan
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        register_named_function(
            tokens.TURN, lambda number, *reply: _connections[int(number)].turn(*reply)
        )

    def exchange(self, calls: Mapping[int, ServerCall]) -> dict[int, Message]:
        ((server, call),) = calls.items()
        plans = self._contents[server].plans.values()
        plan = next(plan for plan in plans if call.function in plan.functions)
        with self._lock:
            found = [each for each in self._idle if each.plan is plan]
            if found:
                self._idle.remove(found[0])
        connection = found[0] if found else Connection(plan, self._loop(plan, call.device))
        reply = connection.ask([tensor.numpy() for tensor in call.request])
        with self._lock:
            self._idle.append(connection)
        return {server: Message(*map(tf.constant, reply))}

    def close(self) -> None:
        """End all loops, which have to be idle; the next exchanges begin others."""
        while self._idle:
            self._idle.pop().close()

    def _loop(self, plan: ServedPlan, device: str) -> Callable[[int], Any]:
        with self._lock:
            if id(plan) not in self._loops:
                self._loops[id(plan)] = _imported(build_service_graph(plan, device=device))
            return self._loops[id(plan)]


def _imported(graph: bytes) -> Callable[[int], Any]:
    definition = tf.compat.v1.GraphDef.FromString(graph)
    _rename_functions(definition)

    def end(connection: tf.Tensor) -> tf.Tensor:
        (found,) = tf.import_graph_def(
            definition, {"connection": connection}, ["end:0"], name="loop"
        )
        return found

    function = tf.compat.v1.wrap_function(end, [tf.TensorSpec([], tf.int64)])
    return lambda number: function(tf.constant(number, tf.int64))


def _rename_functions(graph: tf.compat.v1.GraphDef) -> None:
    """Rename functions that this process already knows from before the loop was made of them."""
    names = {each.signature.name for each in graph.library.function}
    for function in graph.library.function:
        function.signature.name += "_in_a_loop"
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            if node.op in names:
                node.op += "_in_a_loop"
            for value in node.attr.values():
                for called in (value.func, *value.list.func):
                    if called.name in names:
                        called.name += "_in_a_loop"
