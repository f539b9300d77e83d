"""How a worker gets the parameters of one round from all servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from tfps.consistency.ledger import MAX_CALLS, Status
from tfps.runtime.worker.exchange import Ask, column_of, payloads_of
from tfps.transport.carrier import Message
from tfps.transport.message import Kind, Reply


class Found(NamedTuple):
    """All parameters, by server, with the positions that they were read at."""

    payloads: Sequence[tf.Tensor]
    versions: Sequence[tf.Tensor]
    all_well: tf.Tensor  # whether all servers have answered, and know the worker

    @classmethod
    def of(cls, replies: Mapping[int, Message]) -> Found:
        """What servers have replied."""
        statuses = tf.stack(column_of(replies, Reply.STATUS))
        all_well = tf.reduce_all(statuses == Status.OK)
        return cls(payloads_of(replies), column_of(replies, Reply.VERSION), all_well)


class RoundAgreement:
    """Asks all servers for the latest of their rounds until all of them are at its begin.

    Servers are at most a round apart while a worker takes part, so it takes a few requests.

    Args:
        ask: asks them, see `Ask`.
        offers: whether they answer a kind of request.
    """

    def __init__(self, ask: Ask, *, offers: Callable[[Kind], bool]) -> None:
        self._ask_all, self._offers = ask, offers

    def enter(self, found: Found) -> Found:
        """Take part from a round on; answers its parameters."""
        if not self._offers(Kind.ENTER_ROUND):
            return found  # there are no rounds
        return self._until_equal(self._ask(Kind.ENTER_ROUND, found), Kind.ENTER_ROUND)

    def complete(self, found: Found) -> Found:
        """Where servers may be a round apart at the end of a step, the later one's parameters."""
        if not self._offers(Kind.AWAIT_ROUND):
            return found  # all servers begin rounds together
        return self._until_equal(found, Kind.AWAIT_ROUND)

    def catch_up(self, found: Found) -> Found:
        """The parameters of the latest round that has begun on any server, or of a later one."""
        return self._until_equal(self._ask(Kind.AWAIT_ROUND, found), Kind.AWAIT_ROUND)

    @staticmethod
    def is_reached(versions: tf.Tensor) -> tf.Tensor:
        """Whether all servers were at the begin of one round."""
        is_begin = versions[0] % MAX_CALLS == 0
        return tf.logical_and(is_begin, tf.reduce_all(versions == versions[0]))

    def _until_equal(self, found: Found, kind: Kind) -> Found:
        count = len(found.payloads)

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
        number = (latest + MAX_CALLS - 1) // MAX_CALLS
        return Found.of(self._ask_all(kind, versions=[number] * len(found.versions)))
