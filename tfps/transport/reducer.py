"""Adds up the vectors of several workers, over connections between them."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfps.bridge.named_functions import register_named_function
from tfps.errors import ConfigError
from tfps.transport import direct, tokens
from tfps.transport.links import Peers
from tfps.transport.slices import cut_slices, join_slices, parse_segments

ROLE = "reducer"
CONNECT_TIMEOUT_S = 10.0  # a worker that lives responds within milliseconds
# The longest time until a wait finds that a peer has closed its connection.
CHECK_PERIOD_S = 0.05
# Only tasks with the job's secret send; sizes are known when the sums are asked for.
LIMITS = direct.FrameLimits(header_fields=2, max_ids=0, max_payload_bytes=1 << 36)
NO_IDS, NO_BYTES = np.zeros([0], np.int64), np.zeros([0], np.uint8)
SCATTER, GATHER = range(2)


class Key(NamedTuple):
    """Names a message: its sender, and its place in the sender's sequence."""

    sender: int
    number: int


class GroupLinks:
    """The connections of one worker to the other members of one generation, and what has come.

    A connection that ends, or a member that leaves, ends the group: its other connections are
    closed as well, so that all members learn of it.
    """

    def __init__(self) -> None:
        self.sums = 0  # that were computed
        self.failure = ""
        self._outgoing: dict[int, direct.Connection] = {}
        self._incoming: dict[int, direct.Connection] = {}
        self._arrived: dict[Key, np.ndarray] = {}
        self._changed = threading.Condition()

    def add_outgoing(self, member: int, connection: direct.Connection) -> None:
        """Add a connection over which to send to a member."""
        with self._changed:
            self._outgoing[member] = connection
        if self.failure:
            connection.close()

    def receive_from(self, member: int, connection: direct.Connection) -> None:
        """Receive a member's messages until the connection ends, which ends the group."""
        with self._changed:
            self._incoming[member] = connection
        reason = "this task left the group"
        try:
            while not self.failure:
                header, _, payload = connection.receive(LIMITS)
                with self._changed:
                    self._arrived[Key(member, int(header[1]))] = payload
                    self._changed.notify_all()
        except (direct.ConnectionLost, direct.FrameError) as error:
            reason = str(error)
        self.end(reason)

    def send(self, member: int, number: int, arrays: Sequence[np.ndarray]) -> None:
        """Send arrays to a member, as one message.

        Raises:
            direct.ConnectionLost: the group has ended.
        """
        header = np.array([0, number], np.int64)
        self._outgoing[member].send(header, NO_IDS, NO_BYTES, *arrays)

    def wait_for(self, keys: Sequence[Key]) -> list[np.ndarray]:
        """Wait for messages, and return their payloads.

        Raises:
            direct.ConnectionLost: the group has ended before.
        """
        with self._changed:
            while not all(key in self._arrived for key in keys):
                ended = [m for m, each in self._outgoing.items() if each.has_ended()]
                if self.failure or ended:
                    raise direct.ConnectionLost(self.failure or f"worker {ended[0]} left the group")
                self._changed.wait(CHECK_PERIOD_S)
            return [self._arrived.pop(key) for key in keys]

    def has_member(self, worker: int) -> bool:
        """Return whether there is a connection with a worker."""
        with self._changed:
            return worker in self._outgoing or worker in self._incoming

    def end(self, reason: str) -> None:
        """Close all connections; waits end with the first reason."""
        with self._changed:
            self.failure = self.failure or reason
            connections = [*self._outgoing.values(), *self._incoming.values()]
            self._changed.notify_all()
        for connection in connections:
            connection.close()


@functools.lru_cache(maxsize=8)
def _parse_peers(text: bytes) -> Peers:
    return Peers.from_json(text.decode())


class Reducer:
    """Computes sums of the vectors that the members of a generation pass in turn.

    Each member adds up a part of all vectors, in the order of the workers, and sends it to the
    others: so all have the same bits. Both directions of a link are used at once.

    Args:
        host: the host to listen on; empty for all.
        port: the port to listen on; 0 takes a free one.
        encryption: the encryption of connections to other machines.
    """

    def __init__(self, *, host: str, port: int, encryption: direct.Encryption) -> None:
        self._host, self._port, self._encryption = host, port, encryption
        self._lock = threading.Lock()
        self._listener: direct.Listener | None = None
        self._secrets: dict[int, bytes] = {}
        # By job, worker and generation; in tests one process has several workers.
        self._groups: dict[tuple[int, int, int], GroupLinks] = {}
        # By job and worker, the oldest generation that may go on.
        self._floors: dict[tuple[int, int], int] = {}

    def register(self) -> None:
        """Register the functions that steps in this process and the coordinator call."""
        register_named_function(tokens.REDUCE, self.reduce)
        register_named_function(tokens.REGROUP, self.regroup)
        register_named_function(tokens.PART, self.part)
        register_named_function(tokens.ACCEPT, self.accept)
        register_named_function(tokens.RETIRE, self.retire)

    def accept(self, job_id: Any, secret: Any) -> bytes:
        """Accept the workers of a job from now on; return where, or why it cannot, as JSON."""
        own = direct.secret_from_environment()
        with self._lock:
            self._secrets[int(job_id)] = own or bytes(np.asarray(secret).item())
            try:
                self._listener = self._listener or direct.Listener(
                    host=self._host,
                    port=self._port,
                    find_secret=lambda hello: self._secrets.get(hello.job),
                    on_connection=self._serve,
                    encryption=self._encryption,
                )
            except ConfigError as error:
                return json.dumps(str(error)).encode()
            return self._listener.endpoint("").to_json().encode()

    def retire(self, job_id: Any) -> np.int64:
        """End all groups of a job; stop listening after the last job."""
        with self._lock:
            self._secrets.pop(int(job_id), None)
            groups = self._take_groups(lambda key: key[0] == int(job_id))
            listener = None if self._secrets else self._listener
            self._listener = self._listener if self._secrets else None
        for group in groups:
            group.end("the job has ended")
        if listener is not None:
            listener.close()
        return np.int64(1)

    def _serve(self, connection: direct.Connection, hello: direct.Hello) -> None:
        group = self._find_group(hello.job, int(hello.plan), hello.incarnation)
        if group is None:
            connection.close()
        else:
            group.receive_from(hello.worker, connection)

    def _find_group(self, job_id: int, worker: int, generation: int) -> GroupLinks | None:
        """Return the group of a generation; None if a later one has begun."""
        with self._lock:
            if generation < self._floors.get((job_id, worker), 0):
                return None
            return self._groups.setdefault((job_id, worker, generation), GroupLinks())

    def _take_groups(self, is_taken: Callable[[tuple[int, int, int]], bool]) -> list[GroupLinks]:
        return [self._groups.pop(key) for key in [*filter(is_taken, self._groups)]]

    def regroup(self, job_id: Any, worker: Any, generation: Any) -> np.int64:
        """End all groups of a job's worker before a generation."""
        place, floor = (int(job_id), int(worker)), int(generation)
        with self._lock:
            self._floors[place] = max(floor, self._floors.get(place, 0))
            groups = self._take_groups(lambda key: key[:2] == place and key[2] < floor)
        for group in groups:
            group.end("another generation has begun")
        return np.int64(floor)

    def part(self, job_id: Any, worker: Any) -> np.int64:
        """End the groups of a job with another worker, which was lost or hangs."""
        with self._lock:
            place = int(job_id), int(worker)
            groups = [g for k, g in self._groups.items() if k[0] == place[0] and k[:2] != place]
        for group in groups:
            if group.has_member(int(worker)):
                group.end(f"worker {int(worker)} was lost")
        return np.int64(1)

    def reduce(self, peers: Any, place: np.ndarray, *vectors: np.ndarray) -> list[Any]:
        """Return 1 and the sums of all members' vectors, or 0 and zeros if a member was lost.

        Args:
            peers: `Peers` as JSON.
            place: job, generation and worker, then for each worker 1 if it is a member.
            vectors: of this worker.
        """
        job_id, generation, worker, *mask = place.tolist()
        members = [each for each, there in enumerate(mask) if there]
        group = self._find_group(job_id, worker, generation)
        try:
            if group is None:
                raise direct.ConnectionLost("another generation has begun")
            known = bytes(np.asarray(peers).item())
            sums = self._reduce(group, known, place, members, vectors)
        except (direct.ConnectionLost, OSError) as error:
            if group is not None:
                group.end(str(error))
            return [np.int64(0), *map(np.zeros_like, vectors)]
        return [np.int64(1), *sums]

    def _reduce(
        self,
        group: GroupLinks,
        peers: bytes,
        place: np.ndarray,
        members: list[int],
        vectors: Sequence[np.ndarray],
    ) -> list[np.ndarray]:
        job_id, generation, worker = place[:3].tolist()
        if worker not in members:
            raise direct.ConnectionLost("the group has begun without this worker")
        rank, count, number = members.index(worker), len(members), group.sums
        group.sums += 1
        if count == 1:
            return list(vectors)
        others = [members[(rank + step) % count] for step in range(1, count)]
        for member in others if not number else []:
            hello = direct.Hello(
                job=job_id, worker=worker, incarnation=generation, role=ROLE, plan=str(member)
            )
            group.add_outgoing(member, self._connect(_parse_peers(peers), member, hello))
        parts = cut_slices(vectors, count)
        scatter, gather = 2 * number + SCATTER, 2 * number + GATHER
        for member in others:
            group.send(member, scatter, parts[members.index(member)])
        came = group.wait_for([Key(member, scatter) for member in others])
        own = parts[rank]
        by_member = {
            m: parse_segments(data, like=own) for m, data in zip(others, came, strict=True)
        }
        by_member[worker] = own
        total = [array.copy() for array in by_member[members[0]]]
        for member in members[1:]:
            for array, more in zip(total, by_member[member], strict=True):
                np.add(array, more, out=array)
        for member in others:
            group.send(member, gather, total)
        came = group.wait_for([Key(member, gather) for member in others])
        summed = {worker: total}
        for member, data in zip(others, came, strict=True):
            summed[member] = parse_segments(data, like=parts[members.index(member)])
        return join_slices([summed[member] for member in members])

    def _connect(self, peers: Peers, member: int, hello: direct.Hello) -> direct.Connection:
        if member not in peers.endpoints:
            raise direct.ConnectionLost(f"received no address of worker {member}")
        return direct.connect(
            peers.endpoints[member],
            hello,
            secret=direct.secret_from_environment() or bytes.fromhex(peers.secret),
            encryption=self._encryption,
            timeout_s=CONNECT_TIMEOUT_S,
        )
