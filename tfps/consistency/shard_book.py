"""Record the shard and the batch of each ticket of a pass. Pure."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable
from typing import NamedTuple

# Values for tickets without a place.
NOT_ASSIGNED = -1
CLOSED = -2
# The most batches of a shard, so that a place fits into one integer.
MAX_BATCHES = 1 << 40


class BatchPlace(NamedTuple):
    """The place of a batch: its shard, and its index within the shard."""

    shard: int
    batch: int


class ShardBook:
    """Leases shards to workers and records the batch of each ticket.

    A ticket's key is its position in the ticket run. The first request settles its place, and a
    worker that repeats the ticket gets the same one: other workers do what a lost one has not done,
    and nothing twice. A worker keeps its shard to the end; it begins with the one of its own index,
    so that tasks see the same files in each epoch. The shard of a lost worker continues where its
    places end. The length of a shard is known when a worker finds no batch at a place: that ticket
    may then get another place.

    Args:
        shards: the number of shards.
        is_at_work: returns whether a worker is alive; others lose their leases.
    """

    def __init__(self, shards: int, *, is_at_work: Callable[[int], bool]) -> None:
        self._is_at_work = is_at_work
        self._next = [0] * shards
        self._lengths: list[int | None] = [None] * shards
        self._leases: dict[int, int] = {}  # worker -> shard
        self._is_begun: set[int] = set()
        self._offset = 0  # of the current ticket run in the pass
        self._places = array("q")
        self._lock = threading.Lock()

    def begin_ticket_run(self, offset: int) -> None:
        """Begin a ticket run at position ``offset`` of the pass; no earlier ticket comes back."""
        with self._lock:
            del self._places[: max(0, offset - self._offset)]
            self._offset = offset

    def find_place(self, position: int, *, worker: int, may_wait: bool = True) -> BatchPlace | None:
        """Return the place of a ticket, or None if there is no batch that this worker may have.

        Args:
            position: the position of the ticket.
            worker: the worker's index.
            may_wait: whether the ticket goes back if there is no batch, and may get one later. If
                not, it is one of several that are pushed together, and a worker that repeats them
                must find the same number of batches.
        """
        with self._lock:
            known = self._read(position)
            if known >= 0 and self._may_have_batch(*divmod(known, MAX_BATCHES)):
                return BatchPlace(*divmod(known, MAX_BATCHES))
            shard = None if known == CLOSED else self._shard_for(worker)
            if shard is None:
                self._write(position, NOT_ASSIGNED if may_wait else CLOSED)
                return None
            place = BatchPlace(shard, self._next[shard])
            self._next[shard] += 1
            self._write(position, place.shard * MAX_BATCHES + place.batch)
            return place

    def end(self, place: BatchPlace) -> None:
        """Record that a shard has no batch at a place or after it."""
        with self._lock:
            known = self._lengths[place.shard]
            length = place.batch if known is None else min(known, place.batch)
            self._lengths[place.shard] = length

    def has_place(self, position: int) -> bool:
        """Return whether a ticket was assigned a batch that exists, as far as is known."""
        with self._lock:
            known = self._read(position)
            return known >= 0 and self._may_have_batch(*divmod(known, MAX_BATCHES))

    @property
    def exhausted(self) -> bool:
        """Whether every batch was assigned to a ticket."""
        with self._lock:
            return not any(map(self._has_more, range(len(self._next))))

    def _shard_for(self, worker: int) -> int | None:
        """Return the worker's own shard, else a new one, else one whose worker is lost."""
        own = self._leases.get(worker)
        if own is not None and self._has_more(own):
            return own
        count = len(self._next)
        turn = [(worker + step) % count for step in range(count)]
        left = [shard for shard in turn if self._has_more(shard)]
        leased = {shard: other for other, shard in self._leases.items() if other != worker}
        for shard in [s for s in left if s not in self._is_begun] + left:
            if shard not in leased or not self._is_at_work(leased[shard]):
                self._leases.pop(leased.get(shard, worker), None)
                self._leases[worker] = shard
                self._is_begun.add(shard)
                return shard
        return None

    def _has_more(self, shard: int) -> bool:
        """Return whether a shard may have batches that belong to no ticket."""
        return self._may_have_batch(shard, self._next[shard])

    def _may_have_batch(self, shard: int, index: int) -> bool:
        length = self._lengths[shard]
        return length is None or index < length

    def _read(self, position: int) -> int:
        return self._places[position] if position < len(self._places) else NOT_ASSIGNED

    def _write(self, position: int, known: int) -> None:
        self._places.extend([NOT_ASSIGNED] * (position + 1 - len(self._places)))
        self._places[position] = known
