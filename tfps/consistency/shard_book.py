"""Which batch of which shard belongs to a ticket. Pure."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable
from typing import NamedTuple

# What is written for a ticket that has no place.
UNASKED = -1
CLOSED = -2
# A place in one integer: so many batches a shard has at most.
MOST_BATCHES = 1 << 40


class Place(NamedTuple):
    """A batch: its shard, and how many lie before it there."""

    shard: int
    batch: int


class ShardBook:
    """Leases shards to workers and writes down which batch each ticket stands for.

    A ticket goes by its position in the round. The first worker that asks for it settles its place,
    and whoever repeats the ticket gets the same one: what a lost worker has not done is done by
    others, and nothing twice. A worker keeps the shard that it walks through; it begins with the
    one of its own index, so that tasks see the same files in each epoch. The shard of a lost worker
    goes on where its places end. How long a shard is shows when somebody finds nothing at a place:
    that ticket may then get another one.

    Args:
        shards: how many there are.
        is_at_work: whether a worker is alive; others lose their leases.
    """

    def __init__(self, shards: int, *, is_at_work: Callable[[int], bool]) -> None:
        self._is_at_work = is_at_work
        self._next = [0] * shards
        self._lengths: list[int | None] = [None] * shards
        self._leases: dict[int, int] = {}  # of workers
        self._begun: set[int] = set()
        self._offset = 0  # of the round at hand in the pass
        self._places = array("q")
        self._lock = threading.Lock()

    def begin_round(self, offset: int) -> None:
        """Let positions count from here on in the pass; no ticket of before comes back."""
        with self._lock:
            del self._places[: max(0, offset - self._offset)]
            self._offset = offset

    def place(self, position: int, *, worker: int, may_wait: bool = True) -> Place | None:
        """The place of a ticket, or None if there is no batch that this worker may have.

        Args:
            position: of the ticket.
            worker: its index.
            may_wait: whether the ticket goes back when there is no batch, and may get one later.
                Without that it is one of several that are pushed together, and whoever repeats
                them finds as many batches.
        """
        with self._lock:
            known = self._read(position)
            if known >= 0 and self._has(*divmod(known, MOST_BATCHES)):
                return Place(*divmod(known, MOST_BATCHES))
            shard = None if known == CLOSED else self._shard_for(worker)
            if shard is None:
                self._write(position, UNASKED if may_wait else CLOSED)
                return None
            place = Place(shard, self._next[shard])
            self._next[shard] += 1
            self._write(position, place.shard * MOST_BATCHES + place.batch)
            return place

    def end(self, place: Place) -> None:
        """Nothing lies at a place, nor behind it."""
        with self._lock:
            known = self._lengths[place.shard]
            length = place.batch if known is None else min(known, place.batch)
            self._lengths[place.shard] = length

    def has_place(self, position: int) -> bool:
        """Whether a batch belongs to a ticket."""
        with self._lock:
            known = self._read(position)
            return known >= 0 and self._has(*divmod(known, MOST_BATCHES))

    @property
    def exhausted(self) -> bool:
        """Whether every batch belongs to a ticket."""
        with self._lock:
            return not any(map(self._has_more, range(len(self._next))))

    def _shard_for(self, worker: int) -> int | None:
        """The worker's own, else one that nobody has begun, else one whose worker is lost."""
        own = self._leases.get(worker)
        if own is not None and self._has_more(own):
            return own
        count = len(self._next)
        turn = [(worker + step) % count for step in range(count)]
        left = [shard for shard in turn if self._has_more(shard)]
        leased = {shard: other for other, shard in self._leases.items() if other != worker}
        for shard in [s for s in left if s not in self._begun] + left:
            if shard not in leased or not self._is_at_work(leased[shard]):
                self._leases.pop(leased.get(shard, worker), None)
                self._leases[worker] = shard
                self._begun.add(shard)
                return shard
        return None

    def _has_more(self, shard: int) -> bool:
        """Whether a shard has batches, as far as is known, that belong to no ticket."""
        return self._has(shard, self._next[shard])

    def _has(self, shard: int, index: int) -> bool:
        length = self._lengths[shard]
        return length is None or index < length

    def _read(self, position: int) -> int:
        return self._places[position] if position < len(self._places) else UNASKED

    def _write(self, position: int, known: int) -> None:
        self._places.extend([UNASKED] * (position + 1 - len(self._places)))
        self._places[position] = known
