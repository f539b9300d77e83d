"""Starts a task's part of the direct connections between workers and servers."""

from __future__ import annotations

import os
from collections.abc import Callable

from tfps.cluster import ClusterSpec, data_connections
from tfps.cluster.address import LARGEST_PORT, is_loopback, split_address
from tfps.errors import ConfigError

DATA_PORT = "TFPS_DATA_PORT"


def data_port() -> int:
    """Return the port that this task accepts workers on; 0 lets it choose a free one.

    Raises:
        ConfigError: `TFPS_DATA_PORT` is not a port.
    """
    text = os.environ.get(DATA_PORT, "").strip()
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and int(text) <= LARGEST_PORT):
        raise ConfigError(
            f"received {text!r}, expected a port from 1 to {LARGEST_PORT}; unset it to let every "
            "task choose a free port",
            source=DATA_PORT,
        )
    return int(text)


def start_data_plane(spec: ClusterSpec, *, target: Callable[[], str]) -> None:
    """Register the functions that tasks call in this process; on a server, begin to listen.

    Args:
        spec: the cluster and this task.
        target: returns the target of this process's `tf.distribute.Server`, once it has started.

    Raises:
        ConfigError: the port is taken, or a secret or certificate cannot be read.
    """
    from tfps.transport.data_server import DataServer
    from tfps.transport.direct import encryption_from_environment, secret_from_environment
    from tfps.transport.links import Links
    from tfps.transport.reducer import Reducer

    secret, encryption = secret_from_environment(), encryption_from_environment()
    assert spec.task_type is not None
    assert spec.task_index is not None
    host, _ = split_address(spec.address(spec.task_type, spec.task_index))
    # A task with a loopback address has no clients on other machines.
    host = host if is_loopback(host) else ""
    if spec.task_type == "worker":
        Links(encryption=encryption).register()
        Reducer(host=host, port=data_port(), encryption=encryption).register()
        return
    device = f"/job:ps/replica:0/task:{spec.task_index}/device:CPU:0"
    server = DataServer(
        target=target,
        device=device,
        host=host,
        port=data_port(),
        secret=secret,
        encryption=encryption,
        max_connections=data_connections(spec),
    )
    server.register()
