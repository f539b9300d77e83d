"""Reserves room in TensorFlow's table of remote functions, which must not grow while they run."""

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
from tfps.bridge.functions.traced_graph import iter_operations

logger = logging.getLogger(__name__)

# A model needs about ten entries on the chief and, over gRPC, four for each server on a worker.
MIN_CALLS = 31
# Closures of all workers start at the same time, each with an entry of its own on the chief.
CALLS_PER_TASK = 4
# gRPC retries a refused connection after a second.
MAX_ATTEMPTS, RECONNECT_AFTER_S = 3, 1.0


# The state of the tables, by connection, device and incarnation of the device's task. A table lives
# as long as these three, independent of strategies.
_rooms: dict[tuple[int, str, int], TableRoom] = {}


class FunctionTables:
    """Grows the tables of remote functions while nothing uses them.

    A process keeps the functions that it calls on other tasks in one vector. A call reads the name
    of its target from its entry without the lock (TensorFlow 2.21,
    `EagerClusterFunctionLibraryRuntime::Run`). If at that moment another thread adds an entry and
    the vector is reallocated, the name is garbage: the call fails with "Unable to parse request" or
    "Malformed device specification", or the process is aborted. First calls that run at the same
    time, such as requests to several servers, hit this when the vector is full: at the start, and
    again with the further models and functions of a long job.

    So this class adds dummy entries before anything runs, and again before a worker runs a function
    for which there may be too little room.

    Args:
        workers: index -> device of the workers whose tables get room, besides this process's own.
        server: the device of a task that all of them can call.
        server_count: the number of servers.
        task_count: the number of workers and servers with a process of their own; 0 means that
            there are no remote functions.
    """

    def __init__(
        self, *, workers: Mapping[int, str], server: str, server_count: int, task_count: int
    ) -> None:
        self._workers, self._server, self._server_count = dict(workers), server, server_count
        self._is_used = task_count > 0
        self._min_calls = max(MIN_CALLS, CALLS_PER_TASK * task_count)
        self._lock = threading.Lock()
        self._connected: object = None
        self._known: dict[int, weakref.WeakSet[Any]] = {}

    def make_room(self) -> None:
        """Enlarge the function tables of this process and of all workers, before functions run."""
        if not self._is_used:
            return
        own = tf.config.list_logical_devices("CPU")[0].name
        # Alone: the next line calls functions on workers.
        self._reserve_entries([own], self._min_calls)
        self._get_rooms([own])[0].add_used(self._min_calls)
        if self._workers:
            self._reserve_entries(list(self._workers.values()), self._min_calls)

    def prepare(self, worker: int, function: Any) -> None:
        """Make room in a worker's table for a function's calls, just before the function runs.

        Called on the worker's thread, so nothing else runs on the worker. A worker that hangs
        blocks this thread only.

        Args:
            worker: the worker's index.
            function: a concrete function.
        """
        if worker not in self._workers:
            return
        device, known = self._workers[worker], self._get_known_functions(worker)
        if function in known:
            return
        calls = self._count_calls(function)
        with tf.device(device):
            self._reserve_entries([device], calls)
        self._get_rooms([device])[0].add_used(calls)
        known.add(function)

    def reconnect_servers(
        self, servers: Sequence[str], *, without: Collection[int], patience_s: float
    ) -> None:
        """Connect workers to restarted servers while no function runs.

        After a refused connection a worker waits before it retries. If TensorFlow cannot register a
        function with the server in that time, it still records the function as registered, for good
        (TensorFlow 2.21, `ProcessFunctionLibraryRuntime::InstantiateRemote`): each later call fails
        with "Could not find function library for registered component function". So dummy functions
        are called first, until one succeeds.

        Args:
            servers: the devices of the servers.
            without: the workers that are lost.
            patience_s: the time limit for all of them; a worker that has not found a server by then
                may find it later.
        """
        end_s = time.monotonic() + patience_s
        for worker, device in self._workers.items():
            if worker not in without:
                for server in servers:
                    self._call_until_found(device, server, end_s=end_s)

    def _call_until_found(self, device: str, server: str, *, end_s: float) -> None:
        succeeded = False
        while not succeeded and time.monotonic() < end_s:
            with tf.device(device):
                succeeded = fill([device], server, entries=1)
            self._get_rooms([device])[0].add_used(MAX_ATTEMPTS)

    def _get_known_functions(self, worker: int) -> weakref.WeakSet[Any]:
        """Return the functions whose calls already have entries in a worker's table.

        When a task returns, every worker is reconnected, and its functions need new entries.
        """
        connected = private.read_incarnations()
        with self._lock:
            if connected != self._connected:
                self._connected, self._known = connected, {}
            return self._known.setdefault(worker, weakref.WeakSet())

    def _count_calls(self, function: Any) -> int:
        """Return an upper bound of a function's table entries, with one call to each server."""
        operations = iter_operations(function.graph)
        return self._server_count + sum(operation.type == "RemoteCall" for operation in operations)

    def _reserve_entries(self, devices: Sequence[str], calls: int) -> None:
        """Add table entries for a number of calls; devices with equal needs share a function."""
        rooms = dict(zip(devices, self._get_rooms(devices), strict=True))
        missing = {
            device: room.count_filler_entries(calls if room.filled else max(calls, self._min_calls))
            for device, room in rooms.items()
        }
        for entries in sorted(set(missing.values()) - {0}):
            alike = [device for device in devices if missing[device] == entries]
            if fill(alike, self._server, entries=entries):
                for device in alike:
                    rooms[device].filled += entries

    def _get_rooms(self, devices: Sequence[str]) -> list[TableRoom]:
        connection, tasks = private.read_incarnations()
        return [_rooms.setdefault((connection, d, tasks[d]), TableRoom()) for d in devices]


def fill(devices: Sequence[str], server: str, *, entries: int) -> bool:
    """Add entries to the tables of tasks, and return whether that was possible.

    Args:
        devices: the devices of the tasks.
        server: the device of a task that all of them can call.
        entries: the number of entries per table.
    """
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            _call_dummy_functions(devices, server, entries)
            return True
        except tf.errors.OpError as error:
            # A worker that knew a server before its restart refuses to connect at first. Without
            # the room everything works as well as in TensorFlow itself.
            logger.info(
                "could not enlarge the function tables of the tasks (attempt %d): %s",
                attempt,
                error.message,
            )
            time.sleep(RECONNECT_AFTER_S)
    return False


def _call_dummy_functions(devices: Sequence[str], server: str, entries: int) -> None:
    with tf.device(server):
        dummy = tf.function(
            tf.identity, input_signature=[tf.TensorSpec([], tf.int32)], autograph=False
        ).get_concrete_function()

    @tf.function(autograph=False)
    def fill() -> list[tf.Tensor]:
        dummy.add_to_graph(tf.compat.v1.get_default_graph())
        ends = []
        for device in devices:
            with tf.device(device):
                value = tf.constant(0)
                for number in range(entries):
                    # With another attribute TensorFlow counts the same function as another one.
                    (value,) = tf.raw_ops.RemoteCall(
                        target=server,
                        args=[value],
                        Tout=[tf.int32],
                        f=attach_attribute(dummy, "tfps_entry", number),
                    )
                    private.run_independently(value.op)  # its argument orders it already
                ends.append(value)
        return ends

    # Called by itself, each would count as a retracing of the last one in TensorFlow's warning.
    fill.get_concrete_function()()


def attach_attribute(function: Any, name: str, value: int) -> Any:
    """Return a function attribute for an operation, with an attribute that the function ignores."""
    called = tf.compat.v1.NameAttrList(name=function.name)
    called.attr[name].i = value
    return called
