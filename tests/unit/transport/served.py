"""A parameter server's side of `direct` in this process: no server of TensorFlow is started."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import tensorflow as tf

from tfps.bridge.functions.server_function import trace_server_function
from tfps.cluster.threads import SPARE_THREADS
from tfps.runtime.coordinator.data_plane import build_service_graph
from tfps.runtime.coordinator.server_contents import ServedPlan
from tfps.transport import data_server, tokens
from tfps.transport.carrier import Message, ServerCall
from tfps.transport.data_server import DataServer
from tfps.transport.direct import Connection, Encryption, Hello, connect
from tfps.transport.direct_carrier import DirectCarrier
from tfps.transport.links import Links, Peers
from tfps.transport.message import PROTOCOL, REQUEST_FIELDS, Kind, Request
from tfps.transport.service import Entry, Service

JOB, PLAN, SECRET = 11, 5, secrets.token_bytes(32)
DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"
WORKERS = 3
CONNECTIONS = 10
HELLO = Hello(job=JOB, worker=0, incarnation=0, plan=str(PLAN))


class ServedFunctions:
    """Functions that a data server serves to workers of this process.

    Args:
        functions: from a request to a reply, by the kind of request and the sizes of its messages;
            all but the first are called by steps, as in a program.
        encryption: of connections that do not use the unix socket.
    """

    def __init__(self, functions: Mapping[Entry, Any], encryption: Encryption) -> None:
        self._threads_before = _connection_threads()
        self.encryption, self.links = encryption, Links(encryption=encryption)
        self.links.register(in_a_task=False)
        self.server = DataServer(
            target=str,  # the session runs in this process
            device=DEVICE,
            host="127.0.0.1",
            port=0,
            secret=SECRET,
            encryption=encryption,
            max_connections=CONNECTIONS,
        )
        self.server.register()
        signature = Message.signature(REQUEST_FIELDS)
        self.functions = [
            trace_server_function(function, device=DEVICE, signature=signature)
            for function in functions.values()
        ]
        self.service = Service(JOB, PLAN, WORKERS, tuple(functions))
        self.endpoint = self.server.listener.endpoint("127.0.0.1")
        self.open()

    def open(self) -> None:
        """Take part in the job, and serve the functions."""
        ask(tokens.OPEN, tf.string, tf.constant(JOB), tf.constant(b""))
        hot = range(min(1, len(self.functions) - 1), len(self.functions))
        plan = ServedPlan(self.service, tuple(self.functions), tuple(hot))
        graph = build_service_graph(plan, device=DEVICE)
        ask(tokens.INSTALL, tf.int64, JOB, self.service.to_json().encode(), graph)

    def call(self, kind: Kind, payload: tf.Tensor, ids: Sequence[int] = (), **more: Any) -> Any:
        """A request, to be brought by `carrier`.

        Args:
            kind: of the request.
            payload: of the request.
            ids: of the request.
            more: fields of the header in lower case, and arguments of `ServerCall`.
        """
        fields = {
            Request.PROTOCOL: PROTOCOL,
            Request.JOB: JOB,
            Request.PLAN: PLAN,
            Request.KIND: kind,
            Request.TICKET: more.pop("ticket", 0),
            Request.WORKER: more.pop("worker", 0),
            Request.INCARNATION: more.pop("incarnation", 0),
        }
        header = tf.constant([fields.get(field, 0) for field in Request], tf.int64)
        request = Message(header, tf.constant(ids, tf.int64, [len(ids)]), payload)
        entries = dict(zip(self.service.entries, self.functions, strict=True))
        entry, function = next((e, f) for e, f in entries.items() if e.kind == kind)
        return ServerCall(DEVICE, function, request, entry.reply_bytes, **more)

    @property
    def carrier(self) -> DirectCarrier:
        """Reaches this server under two numbers."""
        return DirectCarrier(Peers({0: self.endpoint, 1: self.endpoint}, SECRET.hex()).to_json())

    def connect(self) -> Connection:
        """A connection of its own, for a worker that misbehaves."""
        return connect(
            self.endpoint, HELLO, secret=SECRET, encryption=self.encryption, timeout_s=60
        )

    @property
    def threads(self) -> set[threading.Thread]:
        """The threads of the connections that are served."""
        return _connection_threads() - self._threads_before

    def end_job(self) -> None:
        """Close the job, as the coordinator does in the end."""
        ask(tokens.CLOSE, tf.int64, JOB)


@contextlib.contextmanager
def served(
    functions: Mapping[Entry, Any], encryption: Encryption, *, tcp: bool = False
) -> Iterator[ServedFunctions]:
    """Serve functions until the block ends.

    Args:
        functions: see `Served`.
        encryption: see `Served`.
        tcp: connect as from another machine.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_server, "session_options", _session_options)
        server = ServedFunctions(functions, encryption)
        if tcp:
            server.endpoint = replace(server.endpoint, unix_name="")
        yield server
        server.links.close_job(JOB)
        server.end_job()
        server.server.listener.close()


def _connection_threads() -> set[threading.Thread]:
    """The threads of all listeners of this process, each with a connection."""
    return {thread for thread in threading.enumerate() if thread.name == "tfps-handshake"}


def _session_options(_: str) -> tf.compat.v1.ConfigProto:
    """A thread for each connection and some more, as a server's process has them."""
    return tf.compat.v1.ConfigProto(
        use_per_session_threads=True, inter_op_parallelism_threads=CONNECTIONS + SPARE_THREADS
    )


def ask(token: str, kind: tf.DType, *arguments: Any) -> Any:
    """Call a named function of this process, as the coordinator does."""
    inputs = [tf.convert_to_tensor(argument) for argument in arguments]
    return tf.raw_ops.PyFunc(input=inputs, token=token, Tout=[kind])[0].numpy()
