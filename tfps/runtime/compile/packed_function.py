"""Traces a scheduled function as one pull, and one push per optimizer call."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.step_scope import StepScope, raise_recorded_errors
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.compression.directions import without_deltas
from tfps.errors import UnsupportedError
from tfps.runtime.compile.regimes import REGIMES
from tfps.runtime.compile.server_updates import ServerUpdates
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.program.discovery import Discovery, TracedStrategy
from tfps.runtime.program.local_training import apply_mode
from tfps.runtime.program.metric_states import ADDED, MetricStates
from tfps.runtime.program.program import Program, is_metric, refuse_outside_scope
from tfps.runtime.program.schedule import Regime
from tfps.runtime.program.synchronized import warn_of_synchronized
from tfps.runtime.program.tables import check_whole_tables, choose_row_tables
from tfps.runtime.server.function_half import FunctionHalf

ROW_REGIMES = (Regime.AT_ONCE, Regime.BOUNDED)
Call = partial[Any]  # the user's function and the arguments of a trace


class PackedStrategy(TracedStrategy, Protocol):
    """The part of a strategy that the trace of a scheduled function uses."""

    updates: ServerUpdates


def trace_packed(call: Call, *, strategy: PackedStrategy) -> tuple[Any, bool]:
    """Trace a user's function with packed pulls and pushes instead of single reads.

    Returns:
        The function's result, and whether it reaches variables on servers only through TensorFlow,
        because it does not use Keras 3.

    Raises:
        UnsupportedError: the function does what the strategy's mode cannot allow.
    """
    program, discovery = _discover(call, strategy)
    states = [] if program.draw_seeds is None else [program.draw_seeds.state]
    if not program.variables and program.metrics == states:
        outputs = call()
        captured = {tensor.device for tensor, _ in private.current_graph().captures}
        return outputs, not captured.isdisjoint(strategy.runtime.topology.servers)
    program = _apply_schedule(program, strategy.runtime)
    discovery.refuse_to_densify(program.schedule.tables)
    step_kind = REGIMES[program.schedule.regime].function_step
    assert step_kind is not None
    strategy.updates.get_program_updates(
        program
    )  # variables move, if they do, before anything is traced
    runtime, get_update = strategy.runtime, strategy.updates.get_update
    servers = [
        FunctionHalf(program, runtime=runtime, server=server, get_update=get_update)
        for server in runtime.servers
    ]
    private.keep_with_graph(servers)  # they must exist as long as the trace can run
    step = step_kind(servers)
    is_function = isinstance(call.func, tf.types.experimental.PolymorphicFunction)
    step.look_ups.begin(in_function=is_function)
    step.pull()
    with StepScope(step):
        outputs = call()
    step.on_graph_complete(private.current_graph())
    step.write_back()
    return outputs, False


def _apply_schedule(program: Program, runtime: Runtime) -> Program:
    """Return the program with a schedule; only a function that trains follows the mode."""
    mode = runtime.mode
    if program.calls and mode.warm_up_steps:
        raise UnsupportedError(
            f"consistency={mode!r}: received a scheduled function that calls an optimizer; "
            "expected model.fit() for a warm-up. Train with model.fit(), or replace "
            "warm_up_steps by a learning rate schedule, for example "
            "keras.optimizers.schedules.CosineDecay(0.0, 5000, warmup_target=0.1, "
            "warmup_steps=500)."
        )
    compression = without_deltas(runtime.compression)
    program = apply_mode(program, mode, compression=compression)
    if program.schedule.local is not None:
        refuse_outside_scope(program.variables)
    if program.schedule.regime in ROW_REGIMES:
        return choose_row_tables(program)
    # In rounds a function pulls all parameters with the request by which it enters.
    check_whole_tables(program, f"a scheduled function with consistency={mode!r}")
    return program


def _discover(call: Call, strategy: PackedStrategy) -> tuple[Program, Discovery]:
    discoveries: list[Discovery] = []

    @tf.function(autograph=False)
    def scratch() -> None:
        discovery = Discovery(strategy, looks_up_nested=True)
        discoveries[:] = [discovery]
        with StepScope(discovery) as scope, private.ignore_cached_reads():
            call()
        discovery.initialize(scope.created_variables)

    with raise_recorded_errors():
        scratch.get_concrete_function()
    discovery = discoveries[0]
    is_sequential = strategy.runtime.workers == 1 and len(strategy.devices.names) == 1
    if not is_sequential:
        states = MetricStates(
            discovery.graph,
            touched=[v for v in discovery.found_variables if is_metric(v)],
            handle_of=lambda variable: discovery.get_copy(variable).handle,
        )
        states.refuse_other_changes(ADDED)
    warn_of_synchronized(discovery.normalizing, workers=strategy.runtime.workers)
    on_servers = [v for v in discovery.found_variables if isinstance(v._value, ServerVariable)]
    state = [v for v in on_servers if discovery.is_written(v)]
    program = Program(
        name="custom",
        step=call.func,
        batch_spec=None,
        changes_variables=True,
        is_sequential=is_sequential,
        variables=on_servers,
        state=state,
        paces=discovery.compute_paces(state),
        metrics=[v for v in discovery.found_variables if not isinstance(v._value, ServerVariable)],
        draw_seeds=discovery.draw_seeds,
        looked_up=[v for v in on_servers if discovery.is_only_looked_up(v)],
        read_whole=[v for v in on_servers if discovery.is_read_whole(v)],
        calls=discovery.calls,
        devices=strategy.devices,
    )
    return program, discovery
