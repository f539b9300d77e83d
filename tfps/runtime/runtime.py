"""The runtime of one strategy: servers, named variables, the plan, and the carrier."""

from __future__ import annotations

import hashlib
import itertools
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfps.placement.policy import Placement
from tfps.runtime.server import Server
from tfps.runtime.storage import Storage
from tfps.transport.carrier import Carrier, GrpcCarrier


def server_device(index: int) -> str:
    """The device string of a parameter server."""
    return f"/job:ps/replica:0/task:{index}/device:CPU:0"


class Runtime(Storage):
    """What one job owns on the cluster.

    Args:
        job: names the container of all resources; two jobs on one cluster never meet.
        worker_addresses: of the workers, ``host:port``.
        addresses: of the parameter servers, ``host:port``.
        placement: chooses the server of a new variable.
        carrier: brings requests to servers.
    """

    def __init__(
        self,
        *,
        job: str,
        worker_addresses: Sequence[str],
        addresses: Sequence[str],
        placement: Placement,
        carrier: Carrier | None = None,
    ) -> None:
        super().__init__(container=f"tfps_{job}", number_of_servers=len(addresses))
        self.job, self.workers = job, len(worker_addresses)
        self.worker_addresses = tuple(worker_addresses)
        self.job_id = int.from_bytes(
            hashlib.blake2b(job.encode(), digest_size=7).digest(), "little"
        )
        self.placement = placement
        self.carrier = carrier or GrpcCarrier()
        self.servers = [
            Server(
                index=index,
                device=server_device(index),
                address=address,
                container=self.container,
                slots=self.workers,
            )
            for index, address in enumerate(addresses)
        ]
        self.fallback_steps = 0
        self.closed = False
        self._lock = threading.Lock()
        self._incarnations = itertools.count(1)
        self.push_functions: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def ticket_server(self) -> Server:
        return self.servers[0]

    def choose_device(self, variables_placed: int) -> str:
        """The server of the next variable, by the placement policy."""
        index = self.placement.choose(
            bytes_per_server=self.plan.bytes_per_server, variables_placed=variables_placed
        )
        return self.servers[index].device

    def next_incarnation(self) -> int:
        """A number larger than any before in this job."""
        with self._lock:
            return next(self._incarnations)

    def evict(self, slot: int, incarnation: int) -> None:
        """Let a lost worker out on every server; first on the one that hands out tickets.

        Its tickets have gone back there before any other server refuses the rest of a push.
        """
        for server in self.servers:
            server.evict(slot, incarnation)

    def cells(self) -> list[np.ndarray[Any, Any]]:
        """The books of all servers as they are now."""
        return [server.cells() for server in self.servers]

    def close(self) -> None:
        """Free everything that this job holds on the servers."""
        if self.closed:
            return
        self.closed = True
        self.on_access = lambda: None
        self.collect()
        for resource in list(self._resources.values()):
            resource.destroy()
        for server in self.servers:
            server.ledger.destroy()
            server.control.close()
