"""A scheduled function becomes one pull and one push per optimizer call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.server_variable import ServerVariable
from tfps.bridge.step_scope import StepScope, outside_the_step, refusals
from tfps.consistency.mode import Mode
from tfps.consistency.synchronous import adaptive_batches_of
from tfps.errors import UnsupportedError
from tfps.optimizers.server_update import ServerUpdate
from tfps.runtime.compile.regimes import REGIMES
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.program.discovery import Discovery
from tfps.runtime.program.local_training import keep_to, train_alone
from tfps.runtime.program.program import Program, refuse_strangers
from tfps.runtime.program.schedule import Regime
from tfps.runtime.program.tables import let_rows_travel
from tfps.runtime.server.function_half import FunctionHalf
from tfps.runtime.server.mean_half import MeanHalf
from tfps.runtime.worker.function_step import FunctionStep
from tfps.runtime.worker.function_warm_up import WarmUpStep

ROW_REGIMES = (Regime.AT_ONCE, Regime.BOUNDED)


def trace_packed(
    function: Callable[..., Any], args: Any, kwargs: Any, *, strategy: Any
) -> tuple[Any, bool]:
    """Trace a user's function with packed pulls and pushes in the place of single reads.

    Args:
        function: the user's, as scheduled.
        args: its positional arguments, as tensors of the trace.
        kwargs: its keyword arguments.
        strategy: ours.

    Returns:
        What the function returns, and whether it reaches variables on servers by TensorFlow's path
        alone, because it uses none of Keras 3.

    Raises:
        UnsupportedError: it does what the strategy's mode cannot allow.
    """
    program, discovery = _discover(function, args, kwargs, strategy)
    if not program.variables and not program.metrics:
        outputs = function(*args, **kwargs)
        return outputs, private.captures_from(strategy.runtime.topology.servers)
    program = _scheduled(program, strategy.consistency)
    discovery.refuse_to_densify(program.schedule.tables)
    updates = strategy._updates_of(program)
    # What workers update, no server does.
    updates = updates if program.schedule.local is None else []
    servers = _halves(FunctionHalf, program, strategy=strategy, updates=updates)
    step_kind = REGIMES[program.schedule.regime].function_step
    assert step_kind is not None
    outputs = _run(step_kind, servers, (function, args, kwargs), strategy.runtime)
    if program.calls and strategy.runtime.warm_up is not None:
        _trace_twin(function, args, kwargs, program=program, strategy=strategy)
    return outputs, False


def _halves(
    kind: type[FunctionHalf],
    program: Program,
    *,
    strategy: Any,
    updates: Sequence[ServerUpdate] = (),
) -> list[FunctionHalf]:
    return [
        kind(
            program,
            runtime=strategy.runtime,
            server=server,
            update_of=strategy._update_of,
            updates=updates,
            uses_replies=True,
        )
        for server in strategy.runtime.servers
    ]


def _run(
    step_kind: type[FunctionStep],
    servers: Sequence[Any],
    call: tuple[Callable[..., Any], Any, Any],
    runtime: Runtime,
) -> Any:
    """Trace a call of the user's function between a pull and what is written back."""
    private.keep_with_graph(servers)  # the servers serve them as long as the trace can run
    step = step_kind(servers[0].program, servers=servers, runtime=runtime)
    function, args, kwargs = call
    step.pull()
    with StepScope(step):
        outputs = function(*args, **kwargs)
    step.write_back()
    return outputs


def _trace_twin(
    function: Callable[..., Any], args: Any, kwargs: Any, *, program: Program, strategy: Any
) -> None:
    """At the begin of a job, trace the function as one of the warm-up as well.

    The coordinator chooses between the two when a worker takes the function, which may have been
    scheduled long before.
    """
    optimizers = [call.optimizer for call in program.optimizer_calls]
    with outside_the_step():
        if not strategy.runtime.warm_up.begins(optimizers, strategy=strategy):
            return
    positional, named = tf.nest.map_structure(_spec_of, (args, kwargs))
    twin = tf.function(
        lambda *args, **kwargs: _trace_warm_up(function, args, kwargs, strategy), autograph=False
    )
    twins = strategy.runtime.warm_up.twins
    twins[private.current_graph()] = twin.get_concrete_function(*positional, **named)


def _trace_warm_up(function: Callable[..., Any], args: Any, kwargs: Any, strategy: Any) -> Any:
    program, discovery = _discover(function, args, kwargs, strategy)
    discovery.refuse_to_densify()
    program = train_alone(program, steps=strategy.consistency.warm_up_steps)
    refuse_strangers(program.variables)
    strategy._updates_of(program)  # variables move, if they do, before anything is traced
    servers = _halves(MeanHalf, program, strategy=strategy)
    outputs = _run(WarmUpStep, servers, (function, args, kwargs), strategy.runtime)
    strategy.runtime.warm_up.prepare_end()
    return outputs


def _spec_of(value: Any) -> Any:
    """Of an argument in a trace; what is no tensor is part of the trace."""
    if isinstance(value, tf.Tensor):
        return tf.TensorSpec(value.shape, value.dtype)
    spec = getattr(value, "_type_spec", None)
    return value if spec is None else spec


def _scheduled(program: Program, mode: Mode) -> Program:
    """A function that trains keeps to the mode, others just read."""
    if program.calls and adaptive_batches_of(mode) > 1:
        raise UnsupportedError(
            f"consistency={mode!r}: what a scheduled function computes from is its own matter, so "
            "it cannot be given more batches or fewer. Train with model.fit(), or leave "
            "adaptive_batches out."
        )
    program = keep_to(program, mode)
    if program.schedule.local is not None:
        refuse_strangers(program.variables)
    # In rounds a function asks for all parameters with the request that it enters with.
    return let_rows_travel(program) if program.schedule.regime in ROW_REGIMES else program


def _discover(
    function: Callable[..., Any], args: Any, kwargs: Any, strategy: Any
) -> tuple[Program, Discovery]:
    found: list[Discovery] = []

    @tf.function(autograph=False)
    def scratch() -> None:
        discovery = Discovery(strategy, looks_up_nested=True)
        found[:] = [discovery]
        with StepScope(discovery), private.outside_of_cached_reads():
            function(*args, **kwargs)

    with refusals():
        scratch.get_concrete_function()
    discovery = found[0]
    on_servers = [v for v in discovery.order if isinstance(v._value, ServerVariable)]
    program = Program(
        name="custom",
        step=function,
        batch_spec=None,
        trains=True,
        variables=on_servers,
        state=[v for v in on_servers if discovery.written(v)],
        metrics=[v for v in discovery.order if not isinstance(v._value, ServerVariable)],
        looked_up=[v for v in on_servers if discovery.looked_up(v)],
        calls=discovery.calls,
        devices=strategy.devices,
    )
    return program, discovery
