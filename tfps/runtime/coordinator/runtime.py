"""Manages the resources of one job: servers, variables, plans, carriers and incarnations."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge.closures.closure_numbers import ClosureNumbers
from tfps.bridge.functions.function_table import FunctionTables
from tfps.bridge.variables.server_access import check_failed_accesses
from tfps.cluster import ClusterSpec, has_clients, record_move
from tfps.cluster.introduction import this_chief
from tfps.cluster.served_chief import Question
from tfps.compression.directions import PushPull
from tfps.consistency.applied_window import FUNCTION_CELLS
from tfps.consistency.mode import Mode
from tfps.errors import ConfigError, StrategyClosed
from tfps.partitioners.variable_spec import VariableSpec
from tfps.placement.policy import Placement, is_mirrored, mirrors_any
from tfps.runtime.coordinator.call_ids import OptimizerCallIds
from tfps.runtime.coordinator.connections import Connections, ControlChannel, Task
from tfps.runtime.coordinator.control_plane import NoSuchFunction
from tfps.runtime.coordinator.followed_variables import FollowedVariables
from tfps.runtime.coordinator.function_membership import FunctionMembership
from tfps.runtime.coordinator.server import Server
from tfps.runtime.coordinator.server_contents import ServedPlan, VariableRecord
from tfps.runtime.coordinator.server_members import ServerMembers
from tfps.runtime.coordinator.shared_by_name import SharedByName
from tfps.runtime.coordinator.storage import COLLECTED_BYTES, Storage
from tfps.runtime.coordinator.thread_turn import ThreadTurn
from tfps.runtime.coordinator.worker_local_slots import WorkerLocalSlots
from tfps.transport import tokens

PROBE_TIMEOUT_S = 1.0  # for a worker's port, when the job is closed


def get_container_name(job: str) -> str:
    """Return the name of the container of all resources of a job."""
    return f"tfps_{job}"


def compute_job_id(job: str) -> int:
    """Compute the number that identifies a job in requests."""
    return int.from_bytes(hashlib.blake2b(job.encode(), digest_size=7).digest(), "little")


class Runtime(Storage):
    """The resources of one job on the cluster.

    Args:
        job: the name of the job, and of the container of its resources, so that jobs on one cluster
            stay apart.
        max_workers: the most workers that can take part; None: the current number.
        held: for each server, the existing variables of a job that continues.
    """

    def __init__(  # noqa: PLR0913 - what a job is made of
        self,
        *,
        job: str,
        cluster: ClusterSpec,
        connections: Connections,
        placement: Placement,
        transport: str = "auto",
        mode: Mode,
        compression: PushPull | None = None,
        max_workers: int | None = None,
        held: Sequence[Mapping[str, VariableRecord]] | None = None,
    ) -> None:
        self.connections = connections
        self.topology, self.processes = connections.topology, connections.processes
        super().__init__(container=get_container_name(job), servers=self.topology.servers)
        for contents, held_values in zip(self.contents, held or [], strict=False):
            contents.held = dict(held_values)
        check_failed_accesses(self.container, self)
        self.job, self.workers = job, cluster.count("worker")
        self.max_workers = max_workers or self.workers
        self.cluster = cluster
        self.job_id = compute_job_id(job)
        self.placement, self.mode = placement, mode
        self.compression = compression or PushPull()
        self.servers = [
            Server(
                index=index,
                address=cluster.address("ps", index),
                connections=connections,
                contents=contents,
                workers=self.workers,
                max_workers=self.max_workers,
                mode=mode,
            )
            for index, contents in enumerate(self.contents)
        ]
        self.worker_channels = [
            connections.open_channel(("worker", worker)) for worker in range(self.workers)
        ]
        self.local_slots = WorkerLocalSlots(container=self.container, channels=self.worker_channels)
        self.local_times = WorkerLocalSlots(container=self.container, channels=self.worker_channels)
        # The parts of gradients that codecs leave out.
        self.residuals = WorkerLocalSlots(container=self.container, channels=self.worker_channels)
        # The number of a worker's life; grows each time that it works again after it was lost.
        self.get_life: Callable[[int], int] = lambda _: 1
        self.on_checkpoint_manager: Callable[[Any], None] = lambda _: None  # one was created
        self.checkpoint_folder: Path | None = None  # of the newest one
        # Values that scheduled functions read and do not change, on workers and on servers.
        self.local_values = WorkerLocalSlots(
            container=self.container, channels=self.worker_channels
        )
        self.value_versions = SharedByName()
        self.followed = FollowedVariables(self)
        self.data_plane = connections.create_data_plane(
            job_id=self.job_id,
            servers=self.servers,
            channels=self.worker_channels,
            transport=transport,
        )
        plane = self.data_plane
        self.function_tables = FunctionTables(
            workers={
                worker: self.topology.worker(worker)
                for worker in range(self.workers)
                # Only workers that reach some server by TensorFlow's RPC.
                if ("worker", worker) in self.processes
                and (not plane.direct_workers[worker] or "grpc" in plane.carriers)
            },
            server=self.ticket_server.device,
            server_count=len(self.servers),
            task_count=len(self.processes),
        )
        # Called with the index of a lost server: ends exchanges that wait for it.
        self.hang_up: Callable[[int], None] = self.data_plane.hang_up
        self.fallback_steps = 0
        self.executors: dict[str, str] = {}  # of the newest step of each kind, and the reasons
        self.traces: dict[str, int] = {}  # how often each step and scheduled function was traced
        self.chief_pushes = 0  # pushes of the chief itself
        self.turn = ThreadTurn()  # for the use of the workers
        self.close_reason = ""  # the reason, once it is closed
        self.members = ServerMembers(
            self.servers, on_eviction=plane.part if mirrors_any(placement) else lambda _: None
        )
        self.membership = FunctionMembership(self)
        self.call_ids = OptimizerCallIds()
        self.closure_numbers = ClosureNumbers(cells=FUNCTION_CELLS)
        self._lock = threading.Lock()
        self._unused_plans: list[tuple[int, int]] = []
        self.push_functions: weakref.WeakSet[Any] = weakref.WeakSet()
        # Objects with a `close` of their own, called first: they use the servers apart from
        # training.
        self.dependents: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def closed(self) -> bool:
        """Whether the servers are no longer used."""
        return bool(self.close_reason)

    def check_server(self, device: str) -> None:
        """Check the server of a device after an access to one of its variables has failed.

        Raises:
            tf.errors.UnavailableError: it is gone, was restarted or does not reply.
        """
        for server in [] if self.closed else self.servers:
            if server.device == device:
                server.check()

    def refuse_if_closed(self) -> None:
        """Raise `StrategyClosed` if the servers are no longer used; called before each use."""
        if self.closed:
            raise self.make_closed_error()

    def make_closed_error(self, reason: str = "") -> StrategyClosed:
        """Create the error of a use of the servers after the strategy was closed."""
        return StrategyClosed(
            f"this strategy is closed, because {reason or self.close_reason}, and the variables "
            "of its models no longer exist. Train, evaluate, predict, save and read weights "
            "before it closes, inside the `with` block of the cluster. To continue, create a new "
            "strategy on a running cluster, and the model in its scope."
        )

    @property
    def worker_addresses(self) -> tuple[str, ...]:
        return self.cluster.jobs["worker"]

    @property
    def ticket_server(self) -> Server:
        return self.servers[0]

    def choose_device(self, variable: VariableSpec, *, variables_placed: int) -> str:
        """Choose a variable's server by the placement policy; raises if there is no such server."""
        index = self.placement.choose(
            variable, bytes_per_server=self.bytes_per_server, variables_placed=variables_placed
        )
        if not 0 <= index < len(self.servers):
            raise ConfigError(
                f"placement: received server {index!r} for {variable.path} from "
                f"{self.placement!r}, expected 0 to {len(self.servers) - 1}"
            )
        return self.servers[index].device

    def is_mirrored(self, path: str) -> bool:
        return is_mirrored(self.placement, path)

    def collect(self) -> None:
        """Free the variables and plans without references."""
        super().collect()
        self.free_plans([self._unused_plans.pop() for _ in range(len(self._unused_plans))])
        for server in self.servers:
            server.close_unused_channels()
        if self._freed_bytes >= COLLECTED_BYTES:
            self._give_back()

    def _give_back(self) -> None:
        """Let tasks give the memory of freed variables and messages back to their systems."""
        self._freed_bytes = 0
        for channel in self._channels() if self.processes else []:
            with contextlib.suppress(tf.errors.UnavailableError, NoSuchFunction):  # it is plain
                if channel.lost is None and channel.is_reachable(timeout_s=PROBE_TIMEOUT_S):
                    channel.ask(tokens.GIVE_BACK, patience_s=0.0)

    def install(self, server: Server, plan: ServedPlan, *, owner: Any = None) -> None:
        """Let a server serve a plan until `free_plans`, or a while after its owner is collected."""
        plan_id = plan.service.plan_id
        server.contents.plans[plan_id] = plan
        self.data_plane.install(server, plan)
        if owner is not None:
            # Runs during garbage collection, so it only takes a note; `collect` frees.
            noted = (server.index, plan_id)
            weakref.finalize(owner, self._unused_plans.append, noted).atexit = False

    def free_plans(self, plans: Sequence[tuple[int, int]]) -> None:
        """Free the plans, given as (server, plan), that are no longer used."""
        for index, plan_id in plans:
            self.contents[index].plans.pop(plan_id, None)
        self.data_plane.free_plans(plans)

    def set_task_address(self, task: Task, address: str) -> None:
        """Set the new address of a task; `recreate_contents` then fills a server there."""
        (kind, index), before = task, self.cluster
        self.cluster = before.with_address(kind, index, address)
        self.connections.set_address(task, address)
        if kind == "ps":
            self.servers[index].address = address
        else:
            self.worker_channels[index].renew()
        record_move(before, self.cluster)

    def find_incompatibility(self, task: Task) -> str:
        """Let a restarted task serve this chief; return why it cannot, or an empty string."""
        return self.connections.find_incompatibility(task)

    def recreate_contents(self, server: Server) -> None:
        """Create a server's contents again on an empty one; values are restored after that."""
        server.renew()
        self.data_plane.reopen_server(server)
        server.contents.recreate()
        for plan in server.contents.plans.values():
            self.data_plane.install(server, plan)

    def finish_exchanges(self) -> None:
        """Wait until the requests of cancelled functions have arrived on all servers."""
        for worker in range(self.workers):
            self.data_plane.cancel(worker)

    def cells(self) -> list[np.ndarray[Any, Any]]:
        """Return the current ledgers of all servers."""
        self.refuse_if_closed()
        return [server.cells() for server in self.servers]

    def abandon(self, reason: str, *, is_responding: bool) -> None:
        """Stop using the tasks, and free nothing on them.

        They are about to end, or the resources of the job stay as they are. Guests can end their
        work if all tasks reply (``is_responding``).
        """
        if not self.closed:
            self._mark_closed(reason, closes_dependents=is_responding)
            # The collector would close channels that stay open, and wait for a server that is gone.
            self._close_channels(is_responding=is_responding)

    def _channels(self) -> list[ControlChannel]:
        return [*(server.channel for server in self.servers), *self.worker_channels]

    def _close_channels(self, *, is_responding: bool) -> None:
        owned = [channel for server in self.servers for channel in server.list_channels(owned=True)]
        for channel in [*self._channels(), *owned]:
            channel.close(is_responding=is_responding, error=self.make_closed_error)

    def _mark_closed(self, reason: str, *, closes_dependents: bool) -> None:
        for dependent in list(self.dependents) if closes_dependents else []:
            dependent.close()
        self.close_reason = reason
        self.on_access = self.refuse_if_closed

    def _release_tasks(self) -> None:
        """Let another chief take the tasks, unless this process still uses them."""
        if has_clients(self.processes.values()):
            return
        question = Question(this_chief(), leaves=True).to_json().encode()
        for channel in self._channels() if self.processes else []:
            with contextlib.suppress(tf.errors.UnavailableError, NoSuchFunction):  # serves no chief
                if channel.lost is None and channel.is_reachable(timeout_s=PROBE_TIMEOUT_S):
                    channel.ask(tokens.INTRODUCE, question, patience_s=0.0)

    def close(self, reason: str) -> None:
        """Free all resources of this job on the servers that reply."""
        if self.closed:
            return
        for server in self.servers:
            server.probe()
        if any(server.is_of_another_chief() for server in self.servers):
            self.abandon("another chief goes on with its job", is_responding=True)
            return
        if self.has_mismatches:
            self.abandon(
                "its model differs from the model of the job, which is unchanged",
                is_responding=True,
            )
            return
        self._mark_closed(reason, closes_dependents=True)
        self.collect()
        local = [self.local_slots, self.local_times, self.residuals, self.local_values]
        if any(each.has_names for each in local):
            channels = enumerate(self.worker_channels)
            unreachable = [
                w for w, channel in channels if not channel.is_reachable(timeout_s=PROBE_TIMEOUT_S)
            ]
            for each in local:
                each.free(without=unreachable)
        self.data_plane.close()
        self._release_tasks()
        for contents in self.contents:
            contents.free(contents.records)
        self._give_back()
        self._close_channels(is_responding=True)
