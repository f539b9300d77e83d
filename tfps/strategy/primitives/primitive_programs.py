"""The server functions of pulls and pushes by name, traced at the first call of each kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.variables.shards import get_all_shards
from tfps.optimizers.optimizer_call import OptimizerCall
from tfps.runtime.compile.server_updates import ServerUpdates
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.program.program import Program
from tfps.runtime.program.schedule import Schedule
from tfps.runtime.server.admission import AdmitByVersion
from tfps.runtime.server.function_half import FunctionHalf
from tfps.runtime.server.server_optimizer_call import Update
from tfps.strategy.primitives.gradient_subtraction import GradientSubtraction
from tfps.strategy.primitives.named_parameter import NamedParameter, NamedParameters


class PrimitiveHalf(FunctionHalf):
    """The server part of a program that pulls or pushes by name; applies repeated pushes again."""

    def get_admission(self, number: int) -> AdmitByVersion:
        return AdmitByVersion()

    def _unchanged_variables(self, program: Program, runtime: Runtime) -> list[Any]:
        return []  # the caller keeps the values of `pull`: there is no other copy


class PrimitivePrograms:
    """Compiles the programs of pulls and pushes, and caches them until variables move.

    Args:
        runtime: the job.
        parameters: the variables that users can name.
        updates: the updates of the strategy's optimizers.
    """

    def __init__(
        self, runtime: Runtime, parameters: NamedParameters, updates: ServerUpdates
    ) -> None:
        self._runtime, self._parameters, self._updates = runtime, parameters, updates
        self._compiled: dict[Any, list[FunctionHalf]] = {}
        self._eager: dict[Any, Any] = {}
        self._layouts = runtime.layouts

    def halves_for_names(
        self, names: tuple[str, ...], optimizer: Any = None, *, coded: bool = False
    ) -> list[FunctionHalf]:
        """Return the servers' functions that pull or push whole parameters.

        Args:
            names: the names of the parameters.
            optimizer: applies the pushed gradients; None: they are subtracted.
            coded: whether the gradients go through the job's codecs.

        Raises:
            ConfigError: no variable of the scope has one of the names.
        """
        return self._get_or_compile(
            (names, id(optimizer), coded),
            lambda: _make_optimizer_call(optimizer, self._parameters.find(names)),
            coded=coded,
        )

    def halves_for_rows(self, name: str, optimizer: Any = None) -> list[FunctionHalf]:
        """Return the servers' functions that pull or push rows of one table."""
        return self._get_or_compile(
            ("rows", name, id(optimizer)),
            lambda: _make_optimizer_call(optimizer, self._parameters.find([name])),
            by_rows=True,
        )

    def halves_for_variables(self, variables: Sequence[Any], optimizer: Any) -> list[FunctionHalf]:
        """Return the servers' functions for Keras variables that an optimizer trains."""
        key = (tuple(id(variable) for variable in variables), id(optimizer))
        return self._get_or_compile(key, lambda: OptimizerCall(optimizer, tuple(variables)))

    def cached_function(self, key: Any, function: Any, *, signature: Any = None) -> Any:
        """Return the cached `tf.function` of a key, made from a function at the first call."""
        self._clear_outdated_caches()
        self._runtime.followed.refresh()
        if key not in self._eager:
            self._eager[key] = tf.function(function, autograph=False, input_signature=signature)
        return self._eager[key]

    def _get_or_compile(
        self,
        key: Any,
        make: Callable[[], OptimizerCall],
        *,
        by_rows: bool = False,
        coded: bool = False,
    ) -> list[FunctionHalf]:
        self._clear_outdated_caches()
        if key not in self._compiled:
            self._compiled[key] = self._compile(make(), by_rows=by_rows, coded=coded)
        if not tf.executing_eagerly():
            private.keep_with_graph(self._compiled[key])
        return self._compiled[key]

    def _compile(self, call: OptimizerCall, *, by_rows: bool, coded: bool) -> list[FunctionHalf]:
        tables = call.variables if by_rows else ()
        push = self._runtime.compression.push if coded else None
        program = Program(
            name="primitives",
            step=lambda _: None,
            batch_spec=None,
            changes_variables=True,
            variables=() if by_rows else list(call.variables),
            calls=[call],
            schedule=Schedule(tables=tables, push=push),
        )
        if not isinstance(call.optimizer, GradientSubtraction):
            for shard in get_all_shards(tables):
                shard._value.excluded_from_slabs = True
            self._updates.get_program_updates(program)
            self._clear_outdated_caches()
        return [
            PrimitiveHalf(
                program,
                runtime=self._runtime,
                server=server,
                get_update=self._make_row_update if by_rows else self._make_update,
            )
            for server in self._runtime.servers
        ]

    def _make_update(self, optimizer: Any) -> Update:
        return (
            optimizer
            if isinstance(optimizer, GradientSubtraction)
            else self._updates.get_update(optimizer)
        )

    def _make_row_update(self, optimizer: Any) -> Update:
        return _RowUpdate(self._make_update(optimizer))

    def _clear_outdated_caches(self) -> None:
        """Clear the caches if variables have moved, so that functions use the new places."""
        self._runtime.refuse_if_closed()
        if self._layouts != self._runtime.layouts:
            self._layouts = self._runtime.layouts
            self._compiled.clear()
            self._eager.clear()


class _RowUpdate:
    """Updates only the rows that were pushed, even if its optimizer updates all rows."""

    def __init__(self, update: Update) -> None:
        self._update, self.depends_on_sender = update, update.depends_on_sender

    def apply(self, gradients: Any, context: Any) -> None:
        self._update.apply(gradients, replace(context, by_rows=True))


def _make_optimizer_call(optimizer: Any, parameters: Sequence[NamedParameter]) -> OptimizerCall:
    """Return the call of an optimizer, or of a subtraction for None."""
    if optimizer is None:
        return OptimizerCall(GradientSubtraction(parameters), tuple(parameters))
    return OptimizerCall(optimizer, tuple(p.keras_variable for p in parameters))
