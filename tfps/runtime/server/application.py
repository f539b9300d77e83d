"""What becomes of an admitted push: it changes the variables at once, or goes into a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import tensorflow as tf

from tfps.optimizers.worker_memory import WorkerAt
from tfps.runtime.server.admission import Arrival, PushVerdict
from tfps.runtime.server.contributions import Contributions
from tfps.runtime.server.server_optimizer_call import ServerOptimizerCall
from tfps.transport.message import Request


class Application(Protocol):
    """What a server does with the tensors of a push."""

    def take(
        self, tensors: Mapping[str, Any], arrival: Arrival, verdict: PushVerdict, sender: WorkerAt
    ) -> tf.Tensor:
        """Trace it, under the server's mutex; answers when it is done.

        Args:
            tensors: of the push, by name.
            arrival: the push.
            verdict: what follows from it.
            sender: whose it is.
        """


@dataclass(frozen=True)
class AtOnce:
    """Each push is an update of its own."""

    call: ServerOptimizerCall

    def take(
        self, tensors: Mapping[str, Any], arrival: Arrival, verdict: PushVerdict, sender: WorkerAt
    ) -> tf.Tensor:
        return self.call.timed(
            verdict.fresh,
            lambda: self.call.change(
                tensors, staleness=verdict.staleness, workers=verdict.workers, sender=sender
            ),
        )


@dataclass(frozen=True)
class IntoRound:
    """Pushes add up; the gate applies their mean when the round is complete.

    Args:
        contributions: the sums.
        weighs_examples: a push says how many examples its gradients come from; else all weigh the
            same, as those of a scheduled function, whose batches are its own matter.
    """

    contributions: Contributions
    weighs_examples: bool

    def take(
        self, tensors: Mapping[str, Any], arrival: Arrival, verdict: PushVerdict, sender: WorkerAt
    ) -> tf.Tensor:
        one = tf.constant(1, tf.int64)
        return self.contributions.add(
            tensors,
            examples=arrival.header[Request.STEP_EXAMPLES] if self.weighs_examples else one,
            position=arrival.position,
            condition=verdict.fresh,
        )
