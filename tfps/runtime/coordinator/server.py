"""Controls one parameter server from the coordinator: reads and changes its ledger."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.consistency import chief_requests, issuing
from tfps.consistency import ledger as decide
from tfps.consistency.gate import BoundedGate, Gate, Membership, MembershipGroup, OpenGate
from tfps.consistency.ledger import Ledger, LedgerLayout
from tfps.consistency.mode import Mode
from tfps.consistency.round_gate import RoundGate
from tfps.consistency.server_ledger import GraphLedger, ServerLedger
from tfps.errors import ChiefReplaced
from tfps.runtime.coordinator.connections import Connections, ControlChannel
from tfps.runtime.coordinator.control_plane import CALL_TIMEOUT_S, never_returns
from tfps.runtime.coordinator.server_contents import ServerContents
from tfps.transport.traffic import CodedGroups

# More than any job needs: the tickets for inputs of unknown length.
UNLIMITED_TICKETS = 1 << 60
# The time that the probes of a running job take to find a server lost.
PROBE_TIMEOUT_S = 10.0
REACH_TIMEOUT_S = 2.0


class Server:
    """A parameter server, which the coordinator controls.

    Args:
        index: the index of the task; server 0 issues tickets.
        workers: the number of workers.
        max_workers: the most workers that can take part.
    """

    def __init__(
        self,
        *,
        index: int,
        address: str,
        connections: Connections,
        contents: ServerContents,
        workers: int,
        max_workers: int,
        mode: Mode,
    ) -> None:
        self.index, self.address, self.workers = index, address, workers
        self.contents, self.device = contents, contents.device
        self._connections = connections
        self._lost: str | None = None
        self._wait_for_return: Callable[[], bool] = never_returns
        self.starts = 1  # the number of its starts
        self.limit = 0  # the latest limit of tickets; below 0: halted
        self._moves = itertools.count(1)  # numbers of changes of the limit
        self._expectations = itertools.count(1)  # numbers of expectations that workers will join
        self._channels: weakref.WeakSet[ControlChannel] = weakref.WeakSet()  # the open ones
        self._channels_lock = threading.Lock()  # a set cannot grow while it is iterated over
        self._owned_channels: weakref.WeakSet[ControlChannel] = weakref.WeakSet()
        self._unused_channels: list[ControlChannel] = []  # whose owners were collected
        self.ledger = ServerLedger(contents, workers=max_workers)
        self.coded_groups = CodedGroups()  # groups whose bytes the ledger counts separately
        self.gate: Gate = OpenGate()
        if mode.bound_steps is not None:
            self.gate = BoundedGate(self.ledger, bound_steps=mode.bound_steps)
        self.rounds: RoundGate | None = None
        if mode.backup_workers is not None or mode.warm_up_steps:
            required = workers - (mode.backup_workers or 0)
            self.rounds = RoundGate(self.ledger, required=required)
        gates: list[Membership] = [self.gate] if self.rounds is None else [self.gate, self.rounds]
        self.membership: Membership = MembershipGroup(gates)
        self.channel: ControlChannel = self.open_channel()
        self.term = 0  # the term of this process as the chief
        self._claim_job = self._trace_decision(chief_requests.claim_job, "term")
        self._open = self._trace_decision(chief_requests.open_tickets, "count", "term", "move")
        self._limit = self._trace_decision(chief_requests.move_limit, "limit", "term", "move")
        self._end_rounds = self._trace_decision(
            chief_requests.end_rounds, "first", "together", "term", "move"
        )
        self._withdraw = self._trace_decision(issuing.withdraw_ticket, "ticket")
        self._count_up_to = self._trace_decision(chief_requests.count_up_to, "version")
        self._come_home = self._trace_decision(chief_requests.come_home, "updates")
        self._evict = self._trace_decision(
            self._decide_eviction, "worker", "incarnation", act_on_result=self._leave_group
        )
        if self.rounds is not None:
            self._expect = self.channel.make_function(self._trace_expect, arguments=1 + max_workers)
            self._cancel_expected = self._trace_decision(
                self._has_not_joined, "worker", act_on_result=self.rounds.leave
            )
        self._sample = self.channel.make_function(self._trace_sample, arguments=0)

    def open_channel(self, **options: float) -> ControlChannel:
        """Open another channel to the server; the options are those of `Connections`."""
        channel = self._connections.open_channel(("ps", self.index), **options)
        channel.lost, channel.wait_for_return = self._lost, self._wait_for_return
        with self._channels_lock:
            self._channels.add(channel)
        return channel

    def list_channels(self, *, owned: bool = False) -> list[ControlChannel]:
        """Return the open channels, or only those of owners that live."""
        with self._channels_lock:
            return list(self._owned_channels if owned else self._channels)

    def open_channel_for(self, owner: Any) -> ControlChannel:
        """Open a channel for functions of an owner, of which a longer-lived one would keep copies.

        `close_unused_channels` closes it after the owner was collected.
        """
        channel = self.open_channel()
        with self._channels_lock:
            self._owned_channels.add(channel)
        # Runs during garbage collection, so it only takes a note.
        weakref.finalize(owner, self._unused_channels.append, channel).atexit = False
        return channel

    def close_unused_channels(self) -> None:
        """Close the channels whose owners were collected."""
        while self._unused_channels:
            self._unused_channels.pop().close()

    @property
    def layout(self) -> LedgerLayout:
        return self.ledger.layout

    @property
    def lost(self) -> str | None:
        """The reason why calls raise `UnavailableError` immediately; None if the server replies."""
        return self._lost

    @lost.setter
    def lost(self, reason: str | None) -> None:
        self._lost, self.contents.is_lost = reason, reason is not None
        for channel in self.list_channels():
            channel.lost = reason

    def set_wait_for_return(self, wait_for_return: Callable[[], bool]) -> None:
        """Set the function that waits for a lost server's return; calls are then repeated."""
        self._wait_for_return = wait_for_return
        for channel in self.list_channels():
            channel.wait_for_return = wait_for_return

    def renew(self) -> None:
        """Reconnect all channels to the restarted server."""
        self.starts += 1
        for channel in self.list_channels():
            channel.renew()

    @property
    def issues_tickets(self) -> bool:
        return self.index == 0

    def open_tickets(self, count: int) -> int:
        """Open the tickets of a ticket run, and return the first one."""
        first = self.check_chief_reply(self._open(count, self.term, next(self._moves)))
        self.limit = first + count
        return first

    def set_limit(self, limit: int) -> int:
        """Issue only tickets below a number. Returns the next ticket without a limit."""
        upcoming = self.check_chief_reply(self._limit(limit, self.term, next(self._moves)))
        self.limit = limit
        return upcoming

    def end_rounds(self, first: int, *, together: int) -> int:
        """Issue only the tickets that are left of a begun round; returns their limit.

        Args:
            first: the first ticket of the run.
            together: the number of tickets in a round.
        """
        reply = self._end_rounds(first, together, self.term, next(self._moves))
        self.limit = self.check_chief_reply(reply)
        return self.limit

    def claim_job(self, term: int) -> None:
        """Make this process the chief that the server obeys.

        Raises:
            ChiefReplaced: the server has a newer chief.
        """
        self.term = self.check_chief_reply(self._claim_job(term))

    def is_of_another_chief(self) -> bool:
        """Return whether the server, if it is not lost, obeys a newer chief than this process."""
        return self.lost is None and bool(self.cells()[self.layout.TERM] != self.term)

    def refuse_if_of_another_chief(self) -> None:
        """Raise `ChiefReplaced` if the server obeys a newer chief than this process."""
        if self.is_of_another_chief():
            raise self._make_replaced_error()

    def check_chief_reply(self, reply: list[np.ndarray[Any, Any]]) -> int:
        """Return the number in a server's reply; raise `ChiefReplaced` if it has another chief."""
        number = int(reply[0])
        if number == chief_requests.REPLACED:
            raise self._make_replaced_error()
        return number

    def _make_replaced_error(self) -> ChiefReplaced:
        return ChiefReplaced(
            f"another chief goes on with this job, and ps {self.index} refuses requests of this "
            "one. End this script, and use one chief for the job"
        )

    def halt(self) -> int:
        """Issue no new tickets, only those that came back. Returns the next new ticket."""
        return self.set_limit(-1)

    def withdraw_ticket(self, ticket: int) -> None:
        """Take a returned ticket back, so that no worker gets it any more."""
        self._withdraw(ticket)

    def evict(self, worker: int, incarnation: int, *, patience_s: float = CALL_TIMEOUT_S) -> None:
        """Evict a lost worker: its tickets go back, its late requests are refused."""
        self._evict(worker, incarnation, patience_s=patience_s)

    def count_up_to(self, version: int) -> None:
        """Raise the count of updates to another server's; called at rest, in rounds."""
        self._count_up_to(version)

    def come_home(self, updates: int) -> bool:
        """Record that the chief writes the newest mirrored weights; return whether they are."""
        return bool(self._come_home(updates)[0])

    def expect(self, will_join: Sequence[bool]) -> None:
        """Let rounds wait for workers; ``will_join`` contains a bool for each worker."""
        if self.rounds is not None:
            spare = [False] * (self.layout.workers - len(will_join))
            self._expect(next(self._expectations), *map(int, [*will_join, *spare]))

    def cancel_expected(self, worker: int) -> None:
        """Stop waiting for an expected worker to join."""
        if self.rounds is not None:
            self._cancel_expected(worker)

    def probe(self) -> None:
        """Check whether the server still replies, and mark it as lost if it does not."""
        if self.lost is None and not self.channel.is_reachable(timeout_s=REACH_TIMEOUT_S):
            self.lost = f"the parameter server at {self.address} accepts no connection"
        try:
            self._sample(patience_s=PROBE_TIMEOUT_S)
        except tf.errors.UnavailableError as error:
            self.lost = error.message

    def check(self) -> None:
        """Raise `UnavailableError` if the server is gone, was restarted or does not reply."""
        self.cells(patience_s=PROBE_TIMEOUT_S)

    def cells(self, *, patience_s: float = CALL_TIMEOUT_S) -> np.ndarray[Any, Any]:
        """Return the current ledger."""
        return self._sample(patience_s=patience_s)[0]

    def _trace_decision(
        self,
        decision: Callable[..., tf.Tensor],
        *names: str,
        act_on_result: Callable[[tf.Tensor, tf.Tensor], None] | None = None,
    ) -> Callable[..., list[np.ndarray[Any, Any]]]:
        """Trace a function that decides on the server's ledger, under the server's mutex.

        A decision has arguments with these names, changes the ledger and returns one number.
        ``act_on_result`` gets the first argument and the decision, and is traced after the change.
        """

        def trace(*values: tf.Tensor) -> Sequence[tf.Tensor]:
            with self.ledger.locked():
                ledger = self.ledger.open()
                result = decision(ledger, **dict(zip(names, values, strict=True)))
                self.ledger.write_changes(ledger)
                if act_on_result is not None:
                    act_on_result(values[0], result)
            return [tf.cast(result, tf.int64)]

        return self.channel.make_function(trace, arguments=len(names))

    def _decide_eviction(
        self, ledger: GraphLedger, *, worker: tf.Tensor, incarnation: tf.Tensor
    ) -> tf.Tensor:
        return decide.evict(ledger, worker=worker, incarnation=incarnation)

    def _leave_group(self, worker: tf.Tensor, leaves: tf.Tensor) -> None:
        if self.rounds is not None and self.issues_tickets:
            self.rounds.regroup(worker, leaves, joins=False)
        self.membership.leave(worker, leaves)

    def _has_not_joined(self, ledger: Ledger, *, worker: tf.Tensor) -> tf.Tensor:
        """Return whether an expected worker has not joined yet."""
        return ledger.read(self.layout.active(worker)) == 0

    def _trace_expect(self, number: tf.Tensor, *will_join: tf.Tensor) -> Sequence[tf.Tensor]:
        assert self.rounds is not None
        with self.ledger.locked():
            ledger = self.ledger.open()
            is_new = tf.cast(chief_requests.expect(ledger, number=number), tf.int64)
            self.ledger.write_changes(ledger)
            self.rounds.expect(tf.stack(will_join) * is_new)
            self.ledger.add([self.layout.GENERATION], is_new[None])
        return [is_new]

    def _trace_sample(self) -> Sequence[tf.Tensor]:
        with self.ledger.locked():
            cells = self.ledger.cells()
        return [cells]
