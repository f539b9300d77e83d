"""How a worker gets the parameters of one round from all servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from tfps.consistency.ledger import MAX_STAGES, Status
from tfps.runtime.coordinator.server import Server
from tfps.transport.carrier import Carrier, Message, ServerCall
from tfps.transport.layout import Layout
from tfps.transport.message import Kind, Reply


class RoundServer(Protocol):
    """A program's functions on one server, as far as rounds are agreed on with them."""

    @property
    def server(self) -> Server:
        """Whose functions they are."""

    @property
    def parameter_layout(self) -> Layout:
        """Of what each of them answers."""

    @property
    def enter_round(self) -> Any:
        """Parameters of a round, from which on the worker takes part; None: there are no rounds."""

    @property
    def await_round(self) -> Any:
        """Parameters of a round or a later one; None: all servers begin rounds together."""


class Found(NamedTuple):
    """All parameters, by server, with the positions that they were read at."""

    payloads: Sequence[tf.Tensor]
    versions: Sequence[tf.Tensor]
    all_well: tf.Tensor  # whether all servers have answered, and know the worker

    @classmethod
    def of(cls, replies: Mapping[int, Message]) -> Found:
        """What servers have replied."""
        headers = [replies[p].header for p in sorted(replies)]
        return cls(
            [replies[p].payload for p in sorted(replies)],
            [header[Reply.VERSION] for header in headers],
            tf.reduce_all(tf.stack([header[Reply.STATUS] for header in headers]) == Status.OK),
        )


class RoundAgreement:
    """Asks all servers for the latest of their rounds until all of them are at its begin.

    Servers are at most a round apart while a worker takes part, so it takes a few requests.

    Args:
        servers: the program's functions on each server.
        carrier: brings requests to them.
        header: of a request, from its kind and the round asked for; by server.
    """

    def __init__(
        self,
        servers: Sequence[RoundServer],
        *,
        carrier: Carrier,
        header: Callable[[Kind, tf.Tensor], Callable[[int], tf.Tensor]],
    ) -> None:
        self._servers, self._carrier, self._header = servers, carrier, header

    def enter(self, found: Found) -> Found:
        """Take part from a round on; answers its parameters."""
        if self._servers[0].enter_round is None:
            return found
        return self._until_equal(self._ask(Kind.ENTER_ROUND, found), Kind.ENTER_ROUND)

    def complete(self, found: Found) -> Found:
        """Where servers may be a round apart at the end of a step, the later one's parameters."""
        if self._servers[0].await_round is None:
            return found
        return self._until_equal(found, Kind.AWAIT_ROUND)

    def catch_up(self, found: Found) -> Found:
        """The parameters of the latest round that has begun on any server, or of a later one."""
        return self._until_equal(self._ask(Kind.AWAIT_ROUND, found), Kind.AWAIT_ROUND)

    @staticmethod
    def is_reached(versions: tf.Tensor) -> tf.Tensor:
        """Whether all servers were at the begin of one round."""
        is_begin = versions[0] % MAX_STAGES == 0
        return tf.logical_and(is_begin, tf.reduce_all(versions == versions[0]))

    def _until_equal(self, found: Found, kind: Kind) -> Found:
        count = len(self._servers)

        def differ(versions: tf.Tensor, all_well: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
            return tf.logical_and(all_well, tf.logical_not(self.is_reached(versions)))

        def again(
            versions: tf.Tensor, all_well: tf.Tensor, *payloads: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            answer = self._ask(kind, Found(payloads, tf.unstack(versions, num=count), all_well))
            return (tf.stack(answer.versions), answer.all_well, *answer.payloads)

        state = (tf.stack(found.versions), found.all_well, *found.payloads)
        versions, all_well, *payloads = tf.while_loop(differ, again, state)
        return Found(payloads, tf.unstack(versions, num=count), all_well)

    def _ask(self, kind: Kind, found: Found) -> Found:
        latest = tf.reduce_max(tf.stack(found.versions))
        header = self._header(kind, (latest + MAX_STAGES - 1) // MAX_STAGES)
        calls = {}
        for p, server in enumerate(self._servers):
            function: Any = server.enter_round if kind == Kind.ENTER_ROUND else server.await_round
            held_bytes = server.parameter_layout.size_bytes
            message = Message.of(header(p))
            calls[p] = ServerCall(server.server.device, function, message, held_bytes)
        return Found.of(self._carrier.exchange(calls))
