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
class Roll:
    """The result of asking all servers once.

    Attributes:
        gone: the servers at whose address no server of that index listens.
        anew: the servers whose process is another one than the known one: they are empty.
        process_incarnations: the incarnation of each server that replied.
    """

    gone: Collection[int]
    anew: Collection[int]
    process_incarnations: Mapping[int, int]


class ServerIdentities:
    """Keeps the known incarnation of each server of a job, and asks for the present ones.

    Args:
        runtime: the job.
        elsewhere: finds servers that were started again at another address.
        deadline_s: the seconds within which a server that is not busy replies.
    """

    def __init__(self, runtime: Runtime, elsewhere: NewAddresses, *, deadline_s: float) -> None:
        self._runtime, self._elsewhere, self._deadline_s = runtime, elsewhere, deadline_s
        self._problems: dict[int, str] = {}  # process incarnation -> why it cannot take part
        self._known: dict[int, int | None] = {
            index: seen.process_incarnation for index, seen in self._look().items()
        }

    @property
    def problem(self) -> str:
        """The reason why servers that reply cannot take part; empty if there is none."""
        return self._elsewhere.problem

    def call(self) -> Roll:
        """Ask every server once."""
        seen = self._look()
        process_incarnations = {
            index: each.process_incarnation
            for index, each in seen.items()
            if each.process_incarnation is not None
        }
        return Roll(
            gone=[index for index, each in seen.items() if each.is_gone],
            anew=[i for i, number in process_incarnations.items() if number != self._known[i]],
            process_incarnations=process_incarnations,
        )

    def absent(self, roll: Roll) -> list[int]:
        """Return the servers that do not reply, or do not fit the job."""
        return [index for index in self._known if not self._takes_part(index, roll)]

    def know(self, index: int, roll: Roll) -> None:
        """Take note that a server has been filled: its present process is the known one now."""
        self._known[index] = roll.process_incarnations[index]

    def find(self, lost: Collection[int]) -> dict[int, str]:
        """Return the new addresses of lost servers that reply there."""
        return self._elsewhere.find(lost)

    def _takes_part(self, index: int, roll: Roll) -> bool:
        process_incarnation = roll.process_incarnations.get(index)
        if process_incarnation is None:
            return False
        if index in roll.anew and process_incarnation not in self._problems:
            server = self._runtime.servers[index]
            problem = self._runtime.incompatibility(
                ("ps", index)
            ) or self._runtime.data_plane.incompatibility(server)
            self._problems[process_incarnation] = problem
            self._elsewhere.say(problem)
        return not self._problems.get(process_incarnation)

    def _look(self) -> dict[int, TaskIdentity]:
        addresses = {("ps", s.index): s.address for s in self._runtime.servers}
        seen = ask_identities(addresses, deadline_s=self._deadline_s)
        return {index: identity for (_, index), identity in seen.items()}
