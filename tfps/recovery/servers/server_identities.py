"""Asks which parameter servers reply, and which were restarted."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tfps.recovery.probing.task_identity import TaskIdentity, ask_identities
from tfps.recovery.servers.new_addresses import NewAddresses
from tfps.runtime.coordinator.runtime import Runtime

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServerPresence:
    """Lists which servers replied to one request, and which were restarted.

    Attributes:
        gone: the servers at whose address no server of that index listens.
        restarted: the servers whose process is another one than the known one: they are empty.
        process_incarnations: the incarnation of each server that replied.
    """

    gone: Collection[int]
    restarted: Collection[int]
    process_incarnations: Mapping[int, int]


class ServerIdentities:
    """Keeps the known incarnation of each server of a job, and asks for the present ones.

    Args:
        runtime: the job.
        new_addresses: finds servers that were started again at another address.
        deadline_s: the seconds within which a server that is not busy replies.
    """

    def __init__(self, runtime: Runtime, new_addresses: NewAddresses, *, deadline_s: float) -> None:
        self._runtime, self._new_addresses, self._deadline_s = runtime, new_addresses, deadline_s
        self._problems: dict[int, str] = {}  # process incarnation -> why it cannot take part
        self._known: dict[int, int | None] = {
            index: identities.process_incarnation
            for index, identities in self._ask_incarnations().items()
        }

    @property
    def problem(self) -> str:
        """The reason why servers that reply cannot take part; empty if there is none."""
        return self._new_addresses.problem

    def ask_servers(self) -> ServerPresence:
        """Ask every server once for its incarnation, and return which replied."""
        identities = self._ask_incarnations()
        process_incarnations = {
            index: each.process_incarnation
            for index, each in identities.items()
            if each.process_incarnation is not None
        }
        return ServerPresence(
            gone=[index for index, each in identities.items() if each.is_gone],
            restarted=[i for i, number in process_incarnations.items() if number != self._known[i]],
            process_incarnations=process_incarnations,
        )

    def get_absent_servers(self, replies: ServerPresence) -> list[int]:
        """Return the servers that do not reply, or do not fit the job."""
        return [index for index in self._known if not self._can_take_part(index, replies)]

    def record_restored(self, index: int, replies: ServerPresence) -> None:
        """Record the present process of a server as its known one, once it was filled."""
        self._known[index] = replies.process_incarnations[index]

    def find(self, lost: Collection[int]) -> dict[int, str]:
        """Return the new addresses at which lost servers reply."""
        moved = self._new_addresses.find([("ps", index) for index in lost])
        return {index: address for (_, index), address in moved.items()}

    def _can_take_part(self, index: int, replies: ServerPresence) -> bool:
        process_incarnation = replies.process_incarnations.get(index)
        if process_incarnation is None:
            return False
        if index in replies.restarted and process_incarnation not in self._problems:
            server = self._runtime.servers[index]
            problem = self._runtime.find_incompatibility(
                ("ps", index)
            ) or self._runtime.data_plane.find_incompatibility(server)
            self._problems[process_incarnation] = problem
            self._new_addresses.warn_once(problem)
        return not self._problems.get(process_incarnation)

    def _ask_incarnations(self) -> dict[int, TaskIdentity]:
        tasks = {("ps", server.index): server.address for server in self._runtime.servers}
        # A server that is a device of this process cannot be lost.
        addresses = {task: tasks[task] for task in tasks.keys() & self._runtime.processes.keys()}
        identities = ask_identities(addresses, deadline_s=self._deadline_s)
        return {index: identity for (_, index), identity in identities.items()}
