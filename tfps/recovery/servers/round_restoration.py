"""Restore all servers to a point between two rounds, after some were restarted."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from tfps.checkpoint.commit import Folder
from tfps.checkpoint.lost_rows import check_all_are_stored, find_contents_of_manager, restore_rows
from tfps.checkpoint.manager import CheckpointManager
from tfps.checkpoint.parallel import run_in_parallel
from tfps.consistency.applied_window import cell_of_ticket, window_after
from tfps.consistency.round_point import (
    RoundPoint,
    choose_next_position,
    list_returned_tickets,
    make_ledger_at_point,
)
from tfps.errors import CheckpointError
from tfps.recovery.servers.server_loss import ServerLoss
from tfps.runtime.coordinator.control_plane import bringing_servers_back
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.server import Server

OWN_PUSHES = "variables by strategy.push or an optimizer"
GOING_BACK = "all servers go back to a checkpoint, since one of them was lost"


class Totals(Protocol):
    """Writes the totals of metrics to the ticket server."""

    def write_totals(self) -> None:
        """Write the totals that the chief's runs have read."""


class RepeatableRun(Protocol):
    """A training run whose steps can be repeated from certain points."""

    @property
    def points(self) -> Sequence[RoundPoint]:
        """The points that the run can go back to, the oldest first."""

    def go_back(self, point: RoundPoint) -> int:
        """Go back to a point. Returns how many steps, reported as done, are repeated."""


def count_server_starts(runtime: Runtime) -> tuple[int, ...]:
    """Return how often each server was started, to detect values from before a restart."""
    return tuple(server.starts for server in runtime.servers)


def count_chief_writes(runtime: Runtime) -> dict[str, int]:
    """Return how often this process has written each variable on servers by itself."""
    counts = {}
    for contents in runtime.contents:
        for resource, record in list(contents.records.items()):
            variable = contents.variables.get(resource.shared_name)
            if variable is not None and record is not None and record.initial_value is None:
                counts[resource.shared_name] = variable.own_write_count
    if runtime.chief_pushes:
        counts[OWN_PUSHES] = runtime.chief_pushes
    return counts


def current_round_point(runtime: Runtime, *, checkpoint: int) -> RoundPoint:
    """Return the servers' present state as a point; no worker may take part meanwhile.

    Args:
        runtime: the job.
        checkpoint: the number of the checkpoint that contains the variables' present values.
    """
    layout, ledgers = runtime.ticket_server.layout, runtime.cells()
    returned = list_returned_tickets(layout, ledgers[0].tolist())
    applied: list[Mapping[int, int]] = []
    for server in runtime.servers:
        window = server.ledger.read_values().applied if returned else None
        applied.append(
            {}
            if window is None
            else {ticket: int(window[cell_of_ticket(ticket)]) for ticket in returned}
        )
    return RoundPoint(
        checkpoint=checkpoint,
        ledgers=tuple(tuple(cells.tolist()) for cells in ledgers),
        applied=tuple(applied),
        writes=count_chief_writes(runtime),
    )


class RoundRestoration:
    """Restores all servers to the newest point whose checkpoint is sound.

    Servers that were not lost go back as well: their steps since that point are repeated.

    Args:
        runtime: the job.
        totals: writes the totals of metrics as the runs know them.
    """

    def __init__(self, runtime: Runtime, totals: Totals) -> None:
        self._runtime, self._totals = runtime, totals

    def go_back(
        self, run: RepeatableRun, *, manager: CheckpointManager, restarted: Sequence[Server]
    ) -> list[ServerLoss]:
        """Fill all servers from a checkpoint, and mark them as lost until closures run again.

        Args:
            run: the training that was interrupted.
            manager: the manager of its checkpoints.
            restarted: the servers that are empty.

        Returns:
            The loss of each empty server.

        Raises:
            CheckpointError: no checkpoint is sound, it lacks a variable of a server, or variables
                that this process has written since would be lost.
        """
        began_s, layout = time.monotonic(), self._runtime.ticket_server.layout
        for server in self._runtime.servers:
            server.lost = server.lost or GOING_BACK
        try:
            point = self._newest_usable_point(run, manager)
            self._refuse_writes(point)
            reached = max(self._living_versions(restarted), default=0)
            for server in restarted:
                self._runtime.recreate_contents(server)
            self._fill_servers(manager, point, restarted)
        except CheckpointError:
            self._reset_lost_marks()
            raise
        self._write_ledgers(point)
        for contents in self._runtime.contents:
            for variable in list(contents.variables.values()):
                variable.refresh_mirrors()
        repeated = run.go_back(point)
        self._totals.write_totals()
        version = point.versions(layout)[0]
        return [
            ServerLoss(
                server.index,
                checkpoint=point.checkpoint,
                restored_updates=version,
                updates=max(version, reached),
                repeated_steps=repeated,
                seconds=time.monotonic() - began_s,
            )
            for server in restarted
        ]

    def _reset_lost_marks(self) -> None:
        for server in self._runtime.servers:
            if server.lost == GOING_BACK:
                server.lost = None

    def _newest_usable_point(self, run: RepeatableRun, manager: CheckpointManager) -> RoundPoint:
        points = {point.checkpoint: point for point in run.points}
        usable_numbers = sorted(points.keys() & set(Folder(manager.directory).numbers()))
        if not usable_numbers:
            raise CheckpointError(
                f"{manager.directory} has no complete checkpoint of this epoch, so rounds cannot "
                "repeat; save one when an epoch begins"
            )
        return points[manager.newest_of(usable_numbers).number]

    def _refuse_writes(self, point: RoundPoint) -> None:
        written = point.written_since(count_chief_writes(self._runtime))
        if written:
            raise CheckpointError(
                f"this process has written {', '.join(written)} within an epoch, after checkpoint "
                f"{point.checkpoint}; rounds cannot repeat this. Assign such values when an epoch "
                "begins or ends, or compute them in the step, for example with a "
                "keras.optimizers.schedules.LearningRateSchedule"
            )

    def _living_versions(self, restarted: Sequence[Server]) -> list[int]:
        lost = {server.index for server in restarted}
        living = [server for server in self._runtime.servers if server.index not in lost]
        return [int(server.cells()[server.layout.VERSION]) for server in living]

    def _fill_servers(
        self, manager: CheckpointManager, point: RoundPoint, restarted: Sequence[Server]
    ) -> None:
        contents = find_contents_of_manager(manager)
        manifest = manager.newest_of([point.checkpoint])
        for server in restarted:
            check_all_are_stored(server, contents, others=self._runtime.contents)

        def fill(server: Server) -> None:
            with bringing_servers_back():
                restore_rows(manager, server, manifest=manifest, contents=contents)

        run_in_parallel([partial(fill, server) for server in self._runtime.servers])

    def _write_ledgers(self, point: RoundPoint) -> None:
        runtime, layout = self._runtime, self._runtime.ticket_server.layout
        now = [server.cells() for server in runtime.servers]
        position = choose_next_position(
            layout, [*(cells.tolist() for cells in now), *point.ledgers]
        )
        incarnations = {
            w: runtime.members.latest_incarnation(w) or 0 for w in range(runtime.workers)
        }
        number = runtime.closure_numbers.renew()
        for server, cells, past_cells, keys in zip(
            runtime.servers, now, point.ledgers, point.applied, strict=True
        ):
            new_cells = make_ledger_at_point(
                layout,
                past_cells,
                incarnations=incarnations,
                position=position,
                fence=int(cells[layout.FENCE]),
            )
            new_cells[layout.TERM] = server.term
            applied = window_after(number)
            for ticket, key in keys.items():
                applied[cell_of_ticket(ticket)] = key
            server.ledger.assign_values(np.array(new_cells, np.int64), applied)
