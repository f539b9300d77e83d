"""Steps on several batches, and one exchange with the servers for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.runtime.worker.fit_step import FitStep
from tfps.transport.message import Request


class PeriodStep(FitStep):
    """Traces the steps between two exchanges.

    What the steps write themselves stays in the worker's copies until the exchange.
    """

    def __init__(self, program: Any, **options: Any) -> None:
        super().__init__(program, **options)
        self._at_begin: dict[int, tf.Tensor] = {}  # of the period

    def prepare(self) -> None:
        """Once, when the worker has joined."""

    def begin_period(self) -> None:
        """Note what the exchange at the period's end sends the difference to."""
        counted = [v for v in self.program.state if v._value.dtype.is_integer]
        self._at_begin = {id(v): tf.identity(self.copies.read(v)) for v in counted}

    def nothing_gathered(self) -> dict[str, tf.Tensor]:
        """What a period begins with that is gathered beside the worker's copies."""
        return {}

    def gather(
        self, gathered: dict[str, tf.Tensor], *, examples: tf.Tensor, total: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Add the step that was traced last.

        Args:
            gathered: by the steps before it.
            examples: of its batch.
            total: examples of the period, with these.
        """
        return gathered

    def run(self, batch: Any, **options: Any) -> dict[str, tf.Tensor]:
        report = super().run(batch, **options)
        if len(self.copies) > 1:
            for variable in self.program.state:
                before = self._before.get(id(variable))
                value = self.copies.together(variable, before=before, shares=self.shares)
                self.copies.load(variable, value)
        return report

    def exchange(
        self,
        gathered: Mapping[str, tf.Tensor],
        *,
        ticket: tf.Tensor,
        versions: tf.Tensor,
        report: Mapping[str, tf.Tensor],
        fields: Mapping[Request, tf.Tensor],
    ) -> None:
        """End a period: send what has come of it and take over what the servers have.

        Args:
            gathered: by its steps.
            ticket: of the period.
            versions: by server, that the period began with.
            report: of the period before.
            fields: header fields about the period before, and this one's number of examples.
        """
        self.ticket, self._stage = ticket, 0
        self._graph, self._nested_versions = private.current_graph(), None
        self.versions = tf.unstack(versions, num=len(self.servers))
        self.report, self.fields = dict(report), dict(fields)
        self._send(gathered)

    def _send(self, gathered: Mapping[str, tf.Tensor]) -> None:
        raise NotImplementedError

    def _new_state(self, variable: Any) -> tf.Tensor:
        value = self.copies.read(variable)
        return value - self._at_begin[id(variable)] if value.dtype.is_integer else value
