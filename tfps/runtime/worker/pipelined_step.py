"""A step whose push travels while the next step is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tfps.runtime.message.pushed import NOT_MEASURED, Pushed
from tfps.runtime.message.wire import in_pieces, name_of
from tfps.runtime.worker.fit_step import FitStep
from tfps.transport.message import Request
from tfps.transport.packing import pack


class PipelinedStep(FitStep):
    """Traces steps that keep what they would push, and pushes of steps before.

    The gradient of step i + 1 is computed from parameters that lack the update of step i: a delay
    of exactly one, which counts as staleness.
    """

    payloads: Sequence[tf.Tensor] = ()  # of the step that was traced last

    def _exchange(self, gradients: Mapping[str, tf.Tensor]) -> None:
        self.payloads = self._payloads(0, gradients)

    def send(
        self,
        payloads: Sequence[tf.Tensor],
        *,
        ticket: tf.Tensor,
        versions: tf.Tensor,
        fields: Mapping[Request, tf.Tensor],
    ) -> Pushed:
        """Push what a step before this one has left.

        Args:
            payloads: by server.
            ticket: of that step.
            versions: by server, that it was computed from.
            fields: header fields about the step before that.
        """
        self.ticket, self.fields = ticket, dict(fields)
        self.versions = tf.unstack(versions, num=len(self.servers))
        return self._push(0, payloads)

    def send_nothing(self, *, versions: tf.Tensor, next_ticket: tf.Tensor) -> Pushed:
        """In the place of the push before the first one: the parameters stay as they are."""
        variables = self.program.variables
        values = in_pieces(
            {name_of(v): self.copies.read(v) for v in variables}, variables, name=name_of
        )
        return Pushed(
            payloads=[pack(s.parameter_layout, values) for s in self.servers],
            versions=tf.unstack(versions, num=len(self.servers)),
            accepted=tf.constant(True),
            next_ticket=next_ticket,
            microseconds=tf.constant(NOT_MEASURED, tf.int64),
        )

    def empty_payloads(self) -> list[tf.Tensor]:
        """What stands for the payloads of a step that was not taken."""
        return [tf.zeros([s.wires[0].request.size_bytes], tf.uint8) for s in self.servers]

    def load(self, payloads: Sequence[tf.Tensor]) -> None:
        """Take over the parameters of all servers' replies."""
        self._load(0, payloads)
