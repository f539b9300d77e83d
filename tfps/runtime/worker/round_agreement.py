"""Lets a worker and all servers agree on one round, whose parameters the worker gets."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tfps.consistency.ledger import MAX_CALLS
from tfps.runtime.worker.exchange import ServerReplies
from tfps.transport.message import Kind


class RoundAgreement:
    """Asks all servers for the latest of their rounds until all of them are at its begin.

    Servers are at most a round apart while a worker takes part, so it takes a few requests.

    Args:
        pull_round: pulls a round, by its number, from all servers.
        offers: returns whether servers have a function for a kind of request.
    """

    def __init__(
        self,
        pull_round: Callable[[Kind, tf.Tensor], ServerReplies],
        *,
        offers: Callable[[Kind], bool],
    ) -> None:
        self._pull_round, self._offers = pull_round, offers

    def enter(self, replies: ServerReplies) -> ServerReplies:
        """Enter at the next round, and return its parameters."""
        if not self._offers(Kind.ENTER_ROUND):
            return replies  # there are no rounds
        latest = self._pull_latest_round(Kind.ENTER_ROUND, tf.stack(replies.versions))
        return self._repeat_until_equal(latest, Kind.ENTER_ROUND)

    def complete(self, replies: ServerReplies) -> ServerReplies:
        """Return the later round's parameters, if servers may differ by a round at a step's end."""
        if not self._offers(Kind.AWAIT_ROUND):
            return replies  # all servers begin rounds together
        return self._repeat_until_equal(replies, Kind.AWAIT_ROUND)

    def catch_up(self, replies: ServerReplies) -> ServerReplies:
        """Return the parameters of the latest round begun on any server, or of a later one."""
        latest = self._pull_latest_round(Kind.AWAIT_ROUND, tf.stack(replies.versions))
        return self._repeat_until_equal(latest, Kind.AWAIT_ROUND)

    @staticmethod
    def are_at_same_round(versions: tf.Tensor) -> tf.Tensor:
        """Return whether the servers' positions are the begin of the same round."""
        is_begin = versions[0] % MAX_CALLS == 0
        return tf.logical_and(is_begin, tf.reduce_all(versions == versions[0]))

    def _repeat_until_equal(self, replies: ServerReplies, kind: Kind) -> ServerReplies:
        count = len(replies.payloads)

        def differ(versions: tf.Tensor, accepted: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
            return tf.logical_and(accepted, tf.logical_not(self.are_at_same_round(versions)))

        def again(versions: tf.Tensor, *_: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return state_of(self._pull_latest_round(kind, versions))

        def state_of(replies: ServerReplies) -> tuple[tf.Tensor, ...]:
            versions, writes = tf.stack(replies.versions), tf.stack(replies.other_writes)
            return (versions, replies.accepted, writes, replies.ids, *replies.payloads)

        versions, accepted, writes, ids, *payloads = tf.while_loop(differ, again, state_of(replies))
        return replies._replace(
            payloads=payloads,
            versions=tf.unstack(versions, num=count),
            other_writes=tf.unstack(writes, num=count),
            accepted=accepted,
            ids=ids,
        )

    def _pull_latest_round(self, kind: Kind, versions: tf.Tensor) -> ServerReplies:
        latest = tf.reduce_max(versions)
        return self._pull_round(kind, (latest + MAX_CALLS - 1) // MAX_CALLS)
