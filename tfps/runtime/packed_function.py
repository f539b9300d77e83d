"""A scheduled function becomes one pull and one push per optimizer call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.server_variable import ServerVariable
from tfps.bridge.step_scope import StepScope, outside_the_step, refusals
from tfps.consistency.local_steps import LocalSteps
from tfps.consistency.modes import Mode
from tfps.consistency.synchronous import adaptive_batches_of
from tfps.errors import UnsupportedError
from tfps.runtime.beginning import is_at_begin
from tfps.runtime.custom_bounded import BoundedServer
from tfps.runtime.custom_delta import DeltaRoundServer, DeltaServer
from tfps.runtime.custom_local import LocalCalls, LocalRounds
from tfps.runtime.custom_member import BoundedStep, RoundStep
from tfps.runtime.custom_round import RoundServer
from tfps.runtime.custom_server import CustomServer
from tfps.runtime.custom_step import CustomStep
from tfps.runtime.local_training import train_locally
from tfps.runtime.program import Discovery, Program, refuse_strangers
from tfps.runtime.tables import let_rows_travel


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
        return function(*args, **kwargs), private.captures_of_servers()
    _refuse_warm_up(program, strategy)
    server_kind, step_kind = _kinds(program, strategy.consistency)
    if server_kind in (CustomServer, BoundedServer):
        let_rows_travel(program)
    discovery.refuse_to_densify(program.tables)
    handed = strategy.updates_of(program)
    servers = [
        server_kind(
            program,
            runtime=strategy.runtime,
            server=server,
            update_of=strategy.update_of,
            handed=handed if program.local is None else (),  # what workers update, no server does
            uses_replies=True,
        )
        for server in strategy.runtime.servers
    ]
    private.keep_with_graph(servers)  # the servers serve them as long as the trace can run
    step = step_kind(program, servers=servers, runtime=strategy.runtime)
    step.pull()
    with StepScope(step):
        outputs = function(*args, **kwargs)
    step.write_back()
    return outputs, False


def _refuse_warm_up(program: Program, strategy: Any) -> None:
    mode = strategy.consistency
    if not program.stages or not mode.warm_up_steps:
        return
    with outside_the_step():
        warms_up = is_at_begin([s.optimizer for s in program.stages], strategy=strategy)
    if warms_up:
        raise UnsupportedError(
            f"consistency={mode!r}: scheduled functions do not warm up. What a worker had trained "
            "by itself would be on no server when its functions are done, and the mean might wait "
            "for workers that get no function. Begin with model.fit(), which warms up, and then "
            "schedule functions; or leave warm_up_steps out."
        )


def _kinds(program: Program, mode: Mode) -> tuple[type[CustomServer], type[CustomStep]]:
    """What a function is traced with: one that trains keeps to the mode, others just read."""
    if not program.stages:
        return CustomServer, CustomStep
    if adaptive_batches_of(mode) > 1:
        raise UnsupportedError(
            f"consistency={mode!r}: what a scheduled function computes from is its own matter, so "
            "it cannot be given more batches or fewer. Train with model.fit(), or leave "
            "adaptive_batches out."
        )
    meets = mode.backup_workers is not None
    if isinstance(mode, LocalSteps):
        train_locally(program, mode)
        refuse_strangers(program.variables)
        return (DeltaRoundServer, LocalRounds) if meets else (DeltaServer, LocalCalls)
    if meets:
        return RoundServer, RoundStep
    if mode.bound_steps is not None:
        return BoundedServer, BoundedStep
    return CustomServer, CustomStep


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
    program = Program(
        name="custom", step=function, batch_spec=None, trains=True, devices=strategy.devices
    )
    for variable in discovery.order:
        on_server = isinstance(variable._value, ServerVariable)
        (program.variables if on_server else program.metrics).append(variable)
    program.state = [v for v in program.variables if discovery.written(v)]
    program.looked_up = [v for v in program.variables if discovery.looked_up(v)]
    program.stages = discovery.stages
    return program, discovery
