"""Computes the factor of its old value that each variable keeps after a worker's steps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.variables.linear_part import Factor
from tfps.runtime.message.moved_state import KEPT
from tfps.runtime.program.program import Program
from tfps.runtime.worker.worker_copies import WorkerCopies


class KeptFactors:
    """Factors, one for each variable that a program moves, such as a moving average.

    Args:
        program: the program of the steps.
        copies: the copies that the steps assign.
        is_single_step: whether the factors are those of one step; then they need not be computed
            while it runs, unless it assigns in a branch or a loop.
    """

    def __init__(self, program: Program, copies: WorkerCopies, *, is_single_step: bool) -> None:
        self._places = {
            id(variable): place for place, variable in enumerate(program.moved_variables)
        }
        known = [program.paces[id(variable)].kept for variable in program.moved_variables]
        self._known = known if is_single_step and None not in known else None
        if self._known is not None or not known:
            return
        self._factors = private.create_anonymous_variable(shape=[len(known)], dtype=tf.float64)
        for place, variable in enumerate(program.moved_variables):
            # The other devices of a worker move their copies in the same way.
            copies.get_copy(0, variable).on_assignment = partial(self._multiply, place)

    def begin(self) -> None:
        """Set all factors to 1: old values are kept until an assignment."""
        if self._known is None and self._places:
            ones = tf.ones([len(self._places)], tf.float64)
            self._factors.assign(ones, read_value=False)

    def read_factor(self, variable: Any) -> tf.Tensor:
        """Return the current factor of a variable."""
        return self._read_factors()[self._places[id(variable)]]

    def to_tensors(self) -> Mapping[str, tf.Tensor]:
        """Return the factors as tensors of a message."""
        return {KEPT: self._read_factors()} if self._places else {}

    def _read_factors(self) -> tf.Tensor:
        if self._known is not None:
            return tf.constant(self._known, tf.float64)
        return self._factors.read_value()

    def _multiply(self, place: int, factor: Factor | None) -> None:
        if factor is None:
            raise RuntimeError(
                "received other assignments of the step than in its first trace; assign the same "
                "variables in each trace"
            )
        if isinstance(factor, float) and factor == 1.0:
            return
        tf.raw_ops.ResourceScatterMul(
            resource=self._factors.handle,
            indices=tf.constant(place),
            updates=tf.convert_to_tensor(factor, tf.float64),
        )
