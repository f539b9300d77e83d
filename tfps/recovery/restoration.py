"""What fills a server that was started anew: rows of a checkpoint, and what others know."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfps.checkpoint.lost_rows import mirrors_on, restore_lost_rows
from tfps.checkpoint.manager import CheckpointManager
from tfps.consistency.returned_ledger import applied_by_the_lost, returned_ledger
from tfps.consistency.server_ledger import APPLIED_WINDOW_TICKETS
from tfps.errors import CheckpointError
from tfps.recovery.server_loss import ServerLoss
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server


class Restoration:
    """Makes a server what it was, but for the updates that its rows lack.

    Args:
        runtime: the job.
        checkpoints: answers what has checkpoints of the model that is trained, or None.
        seen: answers the ledger of the ticket server as it was seen last, or None, and writes back
            the totals of metrics that were seen with it when it is called.
        strangers: answers the names of variables on a device that no checkpoint can hold.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        checkpoints: Callable[[], CheckpointManager | None],
        seen: Callable[[], Seen | None],
        strangers: Callable[[str], list[str]],
    ) -> None:
        self._runtime, self._checkpoints = runtime, checkpoints
        self._seen, self._strangers = seen, strangers

    def restore(
        self, server: Server, known: Sequence[Server], living: Sequence[Server]
    ) -> ServerLoss:
        """Fill a server that holds nothing.

        Args:
            server: which one; it answers, and nobody uses it.
            known: servers with a ledger that is right.
            living: servers that have all that they had.

        Raises:
            CheckpointError: no checkpoint has what the server held.
        """
        began_s = time.monotonic()
        manager = self._checkpoints()
        if manager is None:
            raise CheckpointError("there is no tfps.CheckpointManager of the model that is trained")
        if server.rounds is not None:
            raise CheckpointError(
                "where workers take rounds together (tfps.Synchronous, tfps.LocalSteps in rounds) "
                "a lost server ends the job; start it again from its newest checkpoint"
            )
        if strangers := self._strangers(server.device):
            raise CheckpointError(
                f"ps {server.index} held what no checkpoint holds: {', '.join(strangers)} (raw "
                "tf.Variables, or a model of tf_keras)"
            )
        self._runtime.replay(server)
        version = self._write_ledger(server, known)
        manifest = restore_lost_rows(manager, server)
        self._take_from_mirrors(server, living)
        there = {other.device for other in known}
        for variable in mirrors_on(server.device, self._runtime.contents):
            if variable.device in there:
                variable.refresh_mirrors()
        return ServerLoss(
            server.index,
            checkpoint=manifest.number,
            restored_updates=_version_of(manifest, server, servers=len(self._runtime.servers)),
            updates=version,
            seconds=time.monotonic() - began_s,
        )

    def _write_ledger(self, server: Server, known: Sequence[Server]) -> int:
        """Write what was applied; answers how many updates that were."""
        layout = server.layout
        seen = self._seen() if server.hands_out_tickets else None
        of_living = known[0].ledger.values() if known else None
        cells = returned_ledger(
            layout,
            living=None if of_living is None else of_living.cells.tolist(),
            seen=None if seen is None else seen.cells.tolist(),
            incarnations={
                worker: self._runtime.latest_incarnation(worker) or 0
                for worker in range(self._runtime.workers)
            },
            limit=server.limit,
        )
        if of_living is not None:
            applied = of_living.applied
        else:
            applied = np.full([APPLIED_WINDOW_TICKETS], -1, np.int64)
            if seen is not None:
                open_ones = applied_by_the_lost(
                    layout, seen.cells.tolist(), window=APPLIED_WINDOW_TICKETS
                )
                applied[list(open_ones)] = list(open_ones.values())
        cells[layout.TERM] = server.term
        server.ledger.assign_values(np.array(cells, np.int64), applied)
        if seen is not None:
            seen.write_totals()
        return cells[layout.VERSION]

    def _take_from_mirrors(self, server: Server, living: Sequence[Server]) -> None:
        """Counters of optimizers that lay here go on as the other servers have them."""
        devices = {other.device for other in living}
        for variable in list(server.contents.variables.values()):
            copies = [device for device in variable.devices[1:] if device in devices]
            if copies:
                variable.take_from_mirror(copies[0])
            variable.refresh_mirrors()


class Seen(NamedTuple):
    """What the chief has read of the ticket server.

    Attributes:
        cells: its ledger.
        write_totals: writes the totals of metrics that belong to it.
    """

    cells: np.ndarray[Any, Any]
    write_totals: Callable[[], None]


def _version_of(manifest: Any, server: Server, *, servers: int) -> int:
    counters = manifest.counters
    if counters is None:
        return 0
    same = len(counters.versions) == servers
    return int(counters.versions[server.index] if same else min(counters.versions))
