"""The roll of the parameter servers: those that answer, and those that were started anew."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tfps.recovery.probing.incarnation import Presence, look_for
from tfps.recovery.servers.new_addresses import NewAddresses
from tfps.runtime.coordinator.runtime import Runtime

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Roll:
    """The result of one call of the roll of all servers.

    Attributes:
        gone: the servers at whose address no server of that index listens.
        anew: those that another process serves than the one whose contents are known.
        incarnations: of the servers that answered.
    """

    gone: Collection[int]
    anew: Collection[int]
    incarnations: Mapping[int, int]


class ServerPresences:
    """Asks the servers of a job which processes they are.

    Args:
        runtime: the job.
        elsewhere: finds servers that were started again somewhere else.
        deadline_s: within which a server that is not busy answers.
    """

    def __init__(self, runtime: Runtime, elsewhere: NewAddresses, *, deadline_s: float) -> None:
        self._runtime, self._elsewhere, self._deadline_s = runtime, elsewhere, deadline_s
        self._problems: dict[int, str] = {}  # incarnation -> why it cannot take part
        self._known: dict[int, int | None] = {
            index: seen.incarnation for index, seen in self._look().items()
        }

    @property
    def problem(self) -> str:
        """The reason why servers that are there cannot take part; empty if there is none."""
        return self._elsewhere.problem

    def call(self) -> Roll:
        """Ask every server once."""
        seen = self._look()
        incarnations = {
            index: each.incarnation for index, each in seen.items() if each.incarnation is not None
        }
        return Roll(
            gone=[index for index, each in seen.items() if each.is_gone],
            anew=[i for i, incarnation in incarnations.items() if incarnation != self._known[i]],
            incarnations=incarnations,
        )

    def absent(self, roll: Roll) -> list[int]:
        """Return the servers that do not answer, or cannot take part as they are."""
        return [index for index in self._known if not self._takes_part(index, roll)]

    def know(self, index: int, roll: Roll) -> None:
        """Remember that a server has been filled: from now on its process is the known one."""
        self._known[index] = roll.incarnations[index]

    def find(self, lost: Collection[int]) -> dict[int, str]:
        """Return the new addresses of lost servers that answer somewhere else."""
        return self._elsewhere.find(lost)

    def _takes_part(self, index: int, roll: Roll) -> bool:
        incarnation = roll.incarnations.get(index)
        if incarnation is None:
            return False
        if index in roll.anew and incarnation not in self._problems:
            server = self._runtime.servers[index]
            problem = self._runtime.misfit(("ps", index)) or self._runtime.data_plane.misfit(server)
            self._problems[incarnation] = problem
            self._elsewhere.say(problem)
        return not self._problems.get(incarnation)

    def _look(self) -> dict[int, Presence]:
        addresses = {("ps", s.index): s.address for s in self._runtime.servers}
        seen = look_for(addresses, deadline_s=self._deadline_s)
        return {index: presence for (_, index), presence in seen.items()}
