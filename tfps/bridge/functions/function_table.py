"""Room in a table of TensorFlow's that must not grow while functions run."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.table_room import TableRoom
from tfps.bridge.functions.traced_graph import operations_below

logger = logging.getLogger(__name__)

# A model takes about ten entries on the chief and, over gRPC, four for each server on a worker.
FEWEST_CALLS = 31
# Closures of all workers start side by side, each with an entry of its own on the chief.
CALLS_PER_TASK = 4
# gRPC connects again a second after it was refused.
ATTEMPTS, RECONNECT_AFTER_S = 3, 1.0


# What is known of the tables, by the connection, the device and its task's incarnation: they live
# as long as those three, whichever strategies come and go.
_rooms: dict[tuple[int, str, int], TableRoom] = {}


class FunctionTables:
    """Lets the tables of remote functions grow while nothing uses them.

    A process keeps what it calls on other tasks in one vector, and a call that has found its entry
    reads the name of its target from there without the lock (TensorFlow 2.21,
    `EagerClusterFunctionLibraryRuntime::Run`). When another thread calls something for the first
    time at that moment and the vector moves, the name is garbage: the call fails with "Unable to
    parse request" or "Malformed device specification", or the process is aborted. Calls that run
    side by side for the first time, as requests to several servers do, meet it when the vector is
    full: at the begin, and again with the models and functions that a long job comes to.

    So entries of our own are added before anything runs, and again before a worker runs a function
    for which there may be too little room.

    Args:
        workers: index -> device of the workers whose tables shall have room, beside this process's
            own.
        server: the device of a task that all of them can call.
        servers: how many servers there are.
        tasks: how many workers and servers have a process of their own; without any there are no
            remote functions.
    """

    def __init__(
        self, *, workers: Mapping[int, str], server: str, servers: int, tasks: int
    ) -> None:
        self._workers, self._server, self._servers = dict(workers), server, servers
        self._is_used = tasks > 0
        self._fewest = max(FEWEST_CALLS, CALLS_PER_TASK * tasks)
        self._lock = threading.Lock()
        self._connected: object = None
        self._known: dict[int, weakref.WeakSet[Any]] = {}

    def make_room(self) -> None:
        """Add entries before anything runs."""
        if not self._is_used:
            return
        own = tf.config.list_logical_devices("CPU")[0].name
        self._fill([own], self._fewest)  # alone: the next line calls functions on workers
        self._rooms_of([own])[0].use(self._fewest)
        if self._workers:
            self._fill(list(self._workers.values()), self._fewest)

    def prepare(self, worker: int, function: Any) -> None:
        """Let a worker's table have room for a function's calls, just before it runs there.

        Called on the worker's thread: nothing else runs on it. A worker that hangs keeps this
        thread here, and no other one.

        Args:
            worker: its index.
            function: a concrete function.
        """
        if worker not in self._workers:
            return
        device, known = self._workers[worker], self._known_on(worker)
        if function in known:
            return
        calls = self._calls_of(function)
        with tf.device(device):
            self._fill([device], calls)
        self._rooms_of([device])[0].use(calls)
        known.add(function)

    def find_again(
        self, servers: Sequence[str], *, without: Collection[int], patience_s: float
    ) -> None:
        """Let workers find servers that were started anew, while no function runs.

        A worker's connection with such a server rests for a while after it was refused. TensorFlow
        remembers a function that it could not bring to the server meanwhile as one that is there,
        for good (TensorFlow 2.21, `ProcessFunctionLibraryRuntime::InstantiateRemote`): each later
        call ends with "Could not find function library for registered component function". So
        functions that nobody else calls go first.

        Args:
            servers: their devices.
            without: the workers that are away.
            patience_s: how long all of it may take; what a worker has not found then, it may find
                later.
        """
        end_s = time.monotonic() + patience_s
        for worker, device in self._workers.items():
            if worker not in without:
                for server in servers:
                    self._find(device, server, end_s=end_s)

    def _find(self, device: str, server: str, *, end_s: float) -> None:
        found = False
        while not found and time.monotonic() < end_s:
            with tf.device(device):
                found = fill([device], server, entries=1)
            self._rooms_of([device])[0].use(ATTEMPTS)

    def _known_on(self, worker: int) -> weakref.WeakSet[Any]:
        """The functions that have their entries.

        When a task comes back, every worker is connected anew, and takes new ones.
        """
        connected = private.incarnations()
        with self._lock:
            if connected != self._connected:
                self._connected, self._known = connected, {}
            return self._known.setdefault(worker, weakref.WeakSet())

    def _calls_of(self, function: Any) -> int:
        """At most so many entries a function takes: TensorFlow's own path calls every server."""
        operations = operations_below(function.graph)
        return self._servers + sum(operation.type == "RemoteCall" for operation in operations)

    def _fill(self, devices: Sequence[str], calls: int) -> None:
        """Add what is missing for so many calls; on all devices at once where it is the same."""
        rooms = dict(zip(devices, self._rooms_of(devices), strict=True))
        missing = {
            device: room.missing(calls if room.filled else max(calls, self._fewest))
            for device, room in rooms.items()
        }
        for entries in sorted(set(missing.values()) - {0}):
            alike = [device for device in devices if missing[device] == entries]
            if fill(alike, self._server, entries=entries):
                for device in alike:
                    rooms[device].filled += entries

    def _rooms_of(self, devices: Sequence[str]) -> list[TableRoom]:
        connection, tasks = private.incarnations()
        return [_rooms.setdefault((connection, d, tasks[d]), TableRoom()) for d in devices]


def fill(devices: Sequence[str], server: str, *, entries: int) -> bool:
    """Add entries to the tables of tasks; answers whether that was possible.

    Args:
        devices: of the tasks.
        server: the device of a task that all of them can call.
        entries: how many.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _call(devices, server, entries)
            return True
        except tf.errors.OpError as error:
            # A worker that knew the server before it was started anew refuses to connect at first.
            # Without the room everything works as well as in TensorFlow itself.
            logger.info("no room for functions (attempt %d): %s", attempt, error.message)
            time.sleep(RECONNECT_AFTER_S)
    return False


def _call(devices: Sequence[str], server: str, entries: int) -> None:
    with tf.device(server):
        answer = tf.function(
            tf.identity, input_signature=[tf.TensorSpec([], tf.int32)], autograph=False
        ).get_concrete_function()

    @tf.function(autograph=False)
    def fill() -> list[tf.Tensor]:
        answer.add_to_graph(tf.compat.v1.get_default_graph())
        ends = []
        for device in devices:
            with tf.device(device):
                value = tf.constant(0)
                for number in range(entries):
                    # One function; TensorFlow takes it for another one with other attributes.
                    (value,) = tf.raw_ops.RemoteCall(
                        target=server,
                        args=[value],
                        Tout=[tf.int32],
                        f=function_with_attribute(answer, "tfps_entry", number),
                    )
                    private.run_independently(value.op)  # its argument makes it wait
                ends.append(value)
        return ends

    fill()


def function_with_attribute(function: Any, name: str, value: int) -> Any:
    """What an operation calls: a function, with an attribute that the function ignores."""
    called = tf.compat.v1.NameAttrList(name=function.name)
    called.attr[name].i = value
    return called
