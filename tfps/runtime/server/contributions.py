"""Sums the contributions of workers to a round, for one optimizer call on one server."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge.variables.server_variable import ServerVariable
from tfps.consistency.applied_window import NOT_APPLIED
from tfps.consistency.ledger import MAX_CALLS
from tfps.optimizers.server_update import UpdateContext
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.message.wire import (
    get_count_name,
    get_gradient_name,
    get_native_gradient_name,
    get_variable_name,
)
from tfps.runtime.program.schedule import LocalTraining
from tfps.runtime.server.admission import AdmitAll, ReceivedPush
from tfps.runtime.server.round_sums import RoundSum, RowSum, WholeSum, create_move_sum
from tfps.runtime.server.server_optimizer_call import ServerOptimizerCall
from tfps.transport.message import Request

REFERENCE, TOTAL, POSITION = range(3)


class Contributions:
    """Adds up gradients and state, weighted by each contribution's number of examples.

    A weight is the number of examples divided by that of the round's first contribution: if all
    batches have the same size, the weights are exactly 1, and the mean of two gradients is exact.

    A round may drop its contributions, if all workers that could apply them have gone. So sums
    belong to one position of the server; at another position they begin anew.

    Args:
        call: the optimizer call.
        runtime: the runtime of the job.
        admission: the rule by which dropped contributions may come again: those of scheduled
            functions, of which several may share a round, and those of workers that add up
            gradients among themselves. None: they may not.
    """

    def __init__(
        self, call: ServerOptimizerCall, *, runtime: Runtime, admission: AdmitAll | None = None
    ) -> None:
        self._call, self._admission = call, admission
        optimizer = call.optimizer.name if call.is_update else "state"

        def variable(value: Any, kind: str, *, owner: str, **options: Any) -> ServerVariable:
            name = f"{optimizer}/{owner}/{kind}"
            return runtime.create_bookkeeping(
                value, device=call.server.device, name=name, **options
            )

        def whole(native: Any) -> RoundSum:
            create = functools.partial(variable, owner=native.shared_name)
            return WholeSum(native.dtype, native.shape, create=create)

        def rows(native: Any) -> RoundSum:
            return RowSum(native, create=functools.partial(variable, owner=native.shared_name))

        wire = call.wire
        natives = wire.updated_variables if call.is_update else ()
        first = natives[0].shared_name if natives else f"server_{call.server.index}"
        self._weights = variable(np.zeros(3), "weights", owner=first, dtype=tf.float64)
        self._keys: ServerVariable | None = None  # keys of contributions in the sums, if any
        if admission is not None:
            # A worker may die, come back, and contribute to the same round again.
            none = np.full([2 * runtime.max_workers], NOT_APPLIED, np.int64)
            self._keys = variable(none, "keys", owner=first, dtype=tf.int64)
        self._sums: dict[str, RoundSum] = {}
        if call.is_update:
            self._sums.update(
                (get_native_gradient_name(n), whole(n)) for n in wire.gradients.natives
            )
            self._sums.update((get_gradient_name(t), rows(t._value)) for t in wire.tables)
        self._sums.update((get_variable_name(v), whole(v._value)) for v in wire.state)
        is_local = call.is_update and isinstance(call.optimizer, LocalTraining)
        for move in wire.moves:
            native = move.shard._value
            create = functools.partial(variable, owner=native.shared_name)
            self._sums[native.shared_name] = create_move_sum(
                move, create=create, in_sequence=is_local
            )
        for count in wire.counts:
            create = functools.partial(variable, owner=get_count_name(count))
            scalar = WholeSum(tf.float64, tf.TensorShape([]), create=create)
            self._sums[get_count_name(count)] = scalar

    def add(
        self,
        tensors: Mapping[str, Any],
        *,
        examples: tf.Tensor,
        arrival: ReceivedPush,
        condition: tf.Tensor,
    ) -> tf.Tensor:
        """Add a worker's gradients and state if the condition holds. Returns a tensor that follows.

        ``examples`` is the number of examples that they come from.
        """
        position = arrival.position

        def add() -> tf.Tensor:
            known = self._weights.read_value()
            count, now = tf.cast(examples, tf.float64), tf.cast(position, tf.float64)
            is_first = tf.logical_or(known[TOTAL] <= 0, known[POSITION] != now)
            reference = tf.where(is_first, tf.maximum(count, 1.0), known[REFERENCE])
            weight = count / reference
            total = tf.where(is_first, weight, known[TOTAL] + weight)
            for key, sums in self._sums.items():
                sums.add(tensors[key], weight, is_first=is_first)
            self._weights.assign(tf.stack([reference, total, now]), read_value=False)
            self._record_key(arrival.header[Request.TICKET], is_first=is_first)
            return tf.constant(0)

        return tf.cond(condition, add, lambda: tf.constant(0))

    def _record_key(self, key: tf.Tensor, *, is_first: tf.Tensor) -> None:
        if self._keys is None:
            return
        keys = tf.where(is_first, tf.constant(NOT_APPLIED, tf.int64), self._keys.read_value())
        count = tf.reduce_sum(tf.cast(keys != NOT_APPLIED, tf.int64))
        places = tf.range(keys.shape[0], dtype=tf.int64)
        self._keys.assign(tf.where(places == count % keys.shape[0], key, keys), read_value=False)

    def forget_dropped(self, position: tf.Tensor) -> Sequence[tf.Tensor]:
        """Trace removing the keys of contributions that a round has dropped.

        Their functions are run again, since their workers have gone.

        Args:
            position: the server's position in its rounds.

        Returns:
            Tensors that are ready after that; none if contributions have no keys.
        """
        if self._keys is None:
            return ()
        keys, known = self._keys, self._weights.read_value()
        # A round that is closed still has to apply its last contributions.
        is_over = known[POSITION] // MAX_CALLS < tf.cast(position // MAX_CALLS, tf.float64)

        def forget() -> tf.Tensor:
            held = keys.read_value()
            held = tf.boolean_mask(held, held != NOT_APPLIED)
            server_ledger, admission = self._call.server.ledger, self._admission
            assert admission is not None
            server_ledger.allow_repeated_keys(
                cells=admission.get_cell(held), keys=admission.get_key(held)
            )
            self._weights.assign(tf.zeros([3], tf.float64), read_value=False)
            return tf.constant(0)

        is_dropped = tf.logical_and(known[TOTAL] > 0, is_over)
        return [tf.cond(is_dropped, forget, lambda: tf.constant(0))]

    @property
    def has_any(self) -> tf.Tensor:
        """Whether the sums have contributions, a bool scalar."""
        return self._weights.read_value()[TOTAL] > 0

    def apply(self, condition: tf.Tensor, *, compiled: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """Update the server's variables by the mean of the round, if the condition holds.

        Does nothing if the sums are empty: a round that got only repeated pushes has been applied
        before.

        Returns:
            A tensor that depends on the update, and whether the mean was applied.
        """
        applies = tf.logical_and(condition, self.has_any)

        def apply() -> tf.Tensor:
            total = self._weights.read_value()[TOTAL]
            means = {key: sums.mean(total) for key, sums in self._sums.items()}
            context = UpdateContext(
                self._call.server.device, tf.constant(0, tf.int64), may_be_compiled=compiled
            )
            done = self._call.apply_changes(means, context, workers=tf.constant(1, tf.int64))
            with tf.control_dependencies([done]):
                self._weights.assign(tf.zeros([3], tf.float64), read_value=False)
                for sums in self._sums.values():
                    sums.clear()
            return tf.constant(0)

        return self._call.run_timed(applies, apply), applies
