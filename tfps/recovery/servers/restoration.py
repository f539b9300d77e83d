"""Fill a restarted server with rows from a checkpoint and counts from other servers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tfps.checkpoint.lost_rows import restore_lost_rows, variables_with_copy_on
from tfps.checkpoint.manager import CheckpointManager
from tfps.consistency.returned_ledger import applied_on_lost_server, make_returned_ledger
from tfps.errors import CheckpointError
from tfps.recovery.chief.job_record import ITERATION_SUFFIX
from tfps.recovery.servers.server_loss import ServerLoss
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server


class TrainedJob(Protocol):
    """The members of a job that the restoration of its servers uses."""

    @property
    def manager(self) -> CheckpointManager | None:
        """The manager of the trained model's checkpoints, if there is one."""

    def last_reading(self) -> LastReading | None:
        """Return the chief's last reading of the ticket server, or None if there is none."""

    def uncheckpointed_names(self, device: str) -> list[str]:
        """Return the names of variables on a device that checkpoints cannot contain."""

    def has_rounds(self) -> bool:
        """Return whether workers may wait for each other in rounds now."""


class Restoration:
    """Restores a lost server from a checkpoint; its rows lack the updates since the checkpoint.

    Args:
        runtime: the job.
        job: the training, with its checkpoints.
    """

    def __init__(self, runtime: Runtime, job: TrainedJob) -> None:
        self._runtime, self._job = runtime, job

    def restore_all(
        self,
        restarted: Sequence[Server],
        living: Sequence[Server],
        *,
        checkpoint: int | None = None,
    ) -> list[ServerLoss]:
        """Fill servers that are empty; returns the loss of each of them.

        Args:
            restarted: the empty servers, which reply and are not in use; server 0 first.
            living: the servers that have lost nothing.
            checkpoint: the number of a checkpoint since which nothing has changed; None: the
                newest one of this job.

        Raises:
            CheckpointError: no checkpoint contains the servers' variables.
        """
        known = list(living)
        losses = []
        for server in restarted:
            losses.append(self.restore(server, known, living, checkpoint=checkpoint))
            known.append(server)
        return losses

    def restore(
        self,
        server: Server,
        known: Sequence[Server],
        living: Sequence[Server],
        *,
        checkpoint: int | None = None,
    ) -> ServerLoss:
        """Fill a server that is empty; returns its loss.

        Args:
            server: the empty server, which replies and is not in use.
            known: the servers whose ledgers are right.
            living: the servers that have lost nothing.
            checkpoint: see `restore_all`.

        Raises:
            CheckpointError: no checkpoint contains the server's variables.
        """
        began_s = time.monotonic()
        manager = self._job.manager
        if manager is None:
            raise CheckpointError("no tfps.CheckpointManager saves the trained model; make one")
        if checkpoint is None and self._job.has_rounds():
            raise CheckpointError(
                "a lost server ends a job whose workers take rounds together, except in fit under "
                "tfps.Synchronous (tfps.LocalSteps in rounds and the steps of a warm-up are such "
                "rounds); start it again from its newest checkpoint"
            )
        self.refuse_uncheckpointed(server)
        seen = self._job.last_reading()
        self._runtime.recreate_contents(server)
        version = self._write_ledger(server, known)
        manifest = restore_lost_rows(manager, server, checkpoint=checkpoint)
        restored = _version_in_manifest(manifest, server, servers=len(self._runtime.servers))
        self._restore_counters(server, living, updates=version - restored)
        if version < restored:  # no server that has counted more has survived
            version = restored
            self._write_version(server, version)
        known_devices = {other.device for other in known}
        for variable in variables_with_copy_on(server.device, self._runtime.contents):
            if variable.device in known_devices:
                variable.refresh_mirrors()
        return ServerLoss(
            server.index,
            checkpoint=manifest.number,
            restored_updates=restored,
            updates=version,
            seconds=time.monotonic() - began_s,
            is_least=not living and not (seen is not None and seen.is_current),
        )

    def refuse_uncheckpointed(self, server: Server) -> None:
        """Check that checkpoints can contain all variables that a server held.

        Raises:
            CheckpointError: they cannot; names the variables.
        """
        if names := self._job.uncheckpointed_names(server.device):
            raise CheckpointError(
                f"no checkpoint holds these variables of ps {server.index}: {', '.join(names)} "
                "(raw tf.Variables, or a model of tf_keras); make them weights of a Keras 3 model, "
                "and start the job again"
            )

    def _write_ledger(self, server: Server, known: Sequence[Server]) -> int:
        """Write the ledger of a restored server; returns its count of updates."""
        layout = server.layout
        seen = self._job.last_reading() if server.issues_tickets else None
        of_living = known[0].ledger.read_values() if known else None
        cells = make_returned_ledger(
            layout,
            living=None if of_living is None else of_living.cells.tolist(),
            seen=None if seen is None else seen.cells.tolist(),
            incarnations={
                worker: self._runtime.members.latest_incarnation(worker) or 0
                for worker in range(self._runtime.workers)
            },
            limit=server.limit,
        )
        applied = applied_on_lost_server(layout, None if seen is None else seen.cells.tolist())
        if of_living is not None:
            applied = of_living.applied
        cells[layout.TERM] = server.term
        server.ledger.assign_values(np.array(cells, np.int64), applied)
        if seen is not None:
            seen.write_totals()
        return cells[layout.VERSION]

    def _write_version(self, server: Server, version: int) -> None:
        values = server.ledger.read_values()
        cells = np.array(values.cells)
        cells[server.layout.VERSION] = version
        server.ledger.assign_values(cells, values.applied)

    def _restore_counters(self, server: Server, living: Sequence[Server], *, updates: int) -> None:
        """Restore the optimizers' counters of a server from their copies on other servers.

        If no copy has survived, add one for each update since the checkpoint.
        """
        devices = {other.device for other in living}
        for variable in list(server.contents.variables.values()):
            copies = [device for device in variable.devices[1:] if device in devices]
            if copies:
                variable.restore_from_mirror(copies[0])
            elif updates > 0 and variable.shared_name.endswith(ITERATION_SUFFIX):
                variable.add_to_count(updates)
            variable.refresh_mirrors()


class LastReading(NamedTuple):
    """Holds the ledger that the chief has last read from the ticket server.

    Attributes:
        cells: its ledger.
        write_totals: writes the totals of metrics of the same moment.
        is_current: whether nothing has trained since.
    """

    cells: np.ndarray[Any, Any]
    write_totals: Callable[[], None]
    is_current: bool


def _version_in_manifest(manifest: Any, server: Server, *, servers: int) -> int:
    counters = manifest.counters
    if counters is None:
        return 0
    same = len(counters.versions) == servers
    return int(counters.versions[server.index] if same else min(counters.versions))
