"""What one step of a model touches and in which order it calls optimizers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.step_scope import StepScope, outside_the_step
from tfps.bridge.worker_variable import WorkerVariable
from tfps.consistency.ledger import MAX_STAGES
from tfps.errors import UnsupportedError
from tfps.metrics.merging import Merging
from tfps.optimizers.row_updates import refuse_to_densify
from tfps.optimizers.wrapped import members
from tfps.runtime.coordinator.worker_error import refuse_python_functions
from tfps.runtime.program.devices import Devices, Meeting, OneDevice, Replica
from tfps.runtime.program.metric_totals import MetricTotals
from tfps.runtime.program.step_results import StepResults

Step = Callable[[Any], Any]


def is_metric(variable: Any) -> bool:
    """Keras creates the state of metrics, and nothing else, to be summed on read."""
    return bool(variable.synchronization == "on_read")


def is_seed(variable: Any) -> bool:
    """The state of a `keras.random.SeedGenerator`: (seed, count of draws)."""
    return bool(variable.name == "seed_generator_state")


@dataclass(frozen=True)
class Stage:
    """One call of an optimizer, or (optimizer None) the exchange of state at the end of a step."""

    optimizer: Any
    variables: tuple[Any, ...] = ()

    @property
    def identity(self) -> Hashable:
        """The same for each trace of the call."""
        return id(self.optimizer), tuple(id(variable) for variable in self.variables)


@dataclass
class Program:
    """A step as data: found by tracing it once, then compiled for workers and servers.

    Args:
        name: distinguishes the programs of one job.
        step: the model's own step, from a batch to logs.
        batch_spec: structure of `tf.TypeSpec` of a batch.
        variables: Keras variables that live on servers and are pulled.
        state: those of them that the step writes itself, such as moving averages.
        merging: how the states of metrics become one.
        metrics: metric state, accumulated on the ticket server.
        totals: what a step reports of it.
        seeds: seed generators, and how often a step draws from each.
        stages: the optimizer calls in order; empty for a step that trains nothing.
        outputs: the structure that the step returns, as specs.
        results: those of its outputs that are results of metrics.
        devices: of every worker, which divide a step between them.
        pipelined: the worker computes a step while the push of the one before is on its way.
        local: how workers run the optimizers (see `program.local_training`); None: servers do.
        meets: pushes are applied in rounds of all workers.
        adaptive_batches: how many batches such a round has for each worker, shared out by speed.
        looked_up: those of the variables of which the step reads rows, and nothing else.
        tables: those of which rows travel; they are none of the ``variables``.
    """

    name: str
    step: Step
    batch_spec: Any
    trains: bool
    merging: Merging = field(default_factory=Merging)
    variables: list[Any] = field(default_factory=list)
    state: list[Any] = field(default_factory=list)
    metrics: list[Any] = field(default_factory=list)
    totals: MetricTotals = field(default_factory=lambda: MetricTotals([], [], Merging()))
    seeds: list[Any] = field(default_factory=list)
    draws_per_step: list[int] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    outputs: Any = None
    results: StepResults | None = None
    devices: Devices = field(default_factory=OneDevice)
    pipelined: bool = False
    local: Any = None
    meets: bool = False
    adaptive_batches: int = 1
    looked_up: list[Any] = field(default_factory=list)
    tables: list[Any] = field(default_factory=list)

    @property
    def ends_with_its_exchange(self) -> bool:
        """Whether a step has one exchange, at its end: nothing of it waits for the reply."""
        return self.trains and len(self.stages) == 1 and self.stages[0].optimizer is not None

    @property
    def optimizer_calls(self) -> Sequence[Stage]:
        """The calls of optimizers in a step, wherever they run."""
        calls: Sequence[Stage] = self.stages if self.local is None else self.local.calls
        return [call for call in calls if call.optimizer is not None]

    @property
    def period_steps(self) -> int:
        """How many steps a worker takes with one ticket of the servers."""
        return 1 if self.local is None else int(self.local.period_steps)

    @property
    def metric_items(self) -> int:
        return self.totals.items

    @property
    def numeric_outputs(self) -> list[tf.TensorSpec]:
        return [spec for spec in tf.nest.flatten(self.outputs) if _is_reportable(spec)]

    @property
    def output_items(self) -> int:
        return sum(int(np.prod(spec.shape)) for spec in self.numeric_outputs)


def _is_reportable(spec: Any) -> bool:
    return (
        isinstance(spec, tf.TensorSpec)
        and spec.shape.is_fully_defined()
        and (spec.dtype.is_floating or spec.dtype.is_integer or spec.dtype.is_bool)
    )


def _untouched(merging: Merging, touched: list[Any]) -> list[Any]:
    """Variables that the step leaves alone, of states that are merged as a whole."""
    known = {id(variable) for variable in touched}
    return [
        variable
        for state in merging.merged
        if any(id(v) in known for v in state.variables)
        for variable in state.variables
        if id(variable) not in known
    ]


class Discovery:
    """A step trace that only notes what the step does (see `bridge.step_scope.StepTrace`).

    Args:
        strategy: ours.
        looks_up_nested: rows of tables can be asked for in nested functions and loops as well.
    """

    position = None  # no ticket belongs to it

    def __init__(self, strategy: Any, *, looks_up_nested: bool = False) -> None:
        self.strategy = strategy
        self.graph = private.current_graph()
        self.order: list[Any] = []
        self.copies: dict[int, WorkerVariable] = {}
        self.draws: dict[int, int] = {}
        self.stages: list[Stage] = []
        self._meeting = Meeting(self, shares=[tf.constant(1.0)] * len(strategy.devices.names))
        self.needs_final_stage = True
        self._gradients: list[tuple[Any, Any, Any]] = []  # optimizer, gradient, variable
        self._looks_up_nested = looks_up_nested
        self._looked_up: dict[int, list[Any]] = {}  # in which graphs
        self._trained_in: dict[int, list[Any]] = {}
        self._written: set[int] = set()
        self._written_before_apply: set[int] = set()

    def value_of(self, keras_variable: Any) -> WorkerVariable:
        if id(keras_variable) not in self.copies:
            if keras_variable._value is None:
                with outside_the_step(), self.strategy.scope():
                    keras_variable._deferred_initialize()
            with self.graph.as_default():
                self.copies[id(keras_variable)] = WorkerVariable(keras_variable)
            self.order.append(keras_variable)
        return self.copies[id(keras_variable)]

    def assign(self, keras_variable: Any, value: Any) -> None:
        self.value_of(keras_variable).assign(value)
        if is_seed(keras_variable):
            self.draws[id(keras_variable)] = self.draws.get(id(keras_variable), 0) + 1
        elif not is_metric(keras_variable):
            self._written.add(id(keras_variable))
            self.needs_final_stage = True

    def value_on(self, device: int, keras_variable: Any) -> WorkerVariable:
        return self.value_of(keras_variable)

    def look_up(self, keras_variable: Any, ids: tf.Tensor) -> tf.Tensor | None:
        graph = private.current_graph()
        if graph is not self.graph and not self._looks_up_nested:
            return None
        value = self.value_of(keras_variable)
        self._looked_up.setdefault(id(keras_variable), []).append(graph)
        return tf.gather(value, ids)

    def once(self, function: Callable[..., Any], tensors: Sequence[tf.Tensor]) -> Any:
        return function(list(tensors))

    def apply_parts(self, optimizer: Any, parts: Sequence[Any], variables: Sequence[Any]) -> None:
        self.apply(optimizer, parts[0], variables)

    def replica(self, device: int) -> Replica:
        return Replica(self, device=device, meeting=self._meeting)

    def divide(self, run: Callable[[], Any]) -> Any:
        return run()

    def apply(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        variables = list(variables if variables is not None else optimizer._trainable_variables)
        if not optimizer.built:
            with outside_the_step(), self.strategy.scope():
                optimizer.build(variables)
        elif members(optimizer) == [optimizer]:
            optimizer._check_variables_are_known(variables)
        present = tuple(
            variable
            for variable, gradient in zip(variables, gradients, strict=True)
            if gradient is not None
        )
        if not present:
            refuse_python_functions(self.graph)  # which stop every gradient
            raise ValueError(
                "No gradients provided for any variable: "
                f"{[variable.path for variable in variables]}. Does the loss depend on them?"
            )
        for variable, gradient in zip(variables, gradients, strict=True):
            self._gradients.append((optimizer, gradient, variable))
        for variable in present:
            self.value_of(variable)
            self._trained_in.setdefault(id(variable), []).append(private.current_graph())
        self.stages.append(Stage(optimizer, present))
        # An optimizer call inside tf.cond or a nested function cannot carry the next ticket out.
        self.needs_final_stage = private.current_graph() is not self.graph

    def looked_up(self, keras_variable: Any) -> bool:
        """Whether rows were asked for, and nothing else was done with it."""
        copy = self.copies[id(keras_variable)]
        if copy.is_read or copy.assigned or id(keras_variable) not in self._looked_up:
            return False
        # What is asked for in a branch cannot be brought out of it.
        graphs = self._looked_up[id(keras_variable)]
        return all(
            graph is trained
            for graph in graphs
            for trained in self._trained_in.get(id(keras_variable), [])
        )

    def refuse_to_densify(self, tables: Iterable[Any] = ()) -> None:
        """Refuse rows of gradients, where only those were to be updated, of all but some tables.

        Here and not in the trace, where AutoGraph would make another error of it.

        Raises:
            UnsupportedError: there are some.
        """
        travel = {id(table) for table in tables}
        for optimizer, gradient, variable in self._gradients:
            if id(variable) not in travel:
                refuse_to_densify(optimizer, gradient, variable)

    def written(self, keras_variable: Any) -> bool:
        return self.copies[id(keras_variable)].assigned


def discover(program: Program, strategy: Any) -> Program:
    """Trace the step once into a graph that is thrown away, and fill in the program.

    Raises:
        UnsupportedError: more optimizer calls in a step than a ticket can number, or a call of a
            Python function.
    """
    found: list[Discovery] = []

    def trace(data: Any) -> Any:  # Keras's name for it, which TensorFlow's messages quote
        discovery = Discovery(strategy)
        found[:] = [discovery]
        with private.default_replica_context(), StepScope(discovery):
            return program.step(data)

    concrete = tf.function(trace, autograph=False).get_concrete_function(program.batch_spec)
    refuse_python_functions(concrete.graph)
    discovery = found[0]
    stages = discovery.stages
    if program.trains and discovery.needs_final_stage:
        stages = [*stages, Stage(None)]
    if len(stages) > MAX_STAGES:
        raise UnsupportedError(
            f"the training step calls optimizers {len(stages)} times; expected at most "
            f"{MAX_STAGES}. Collect the gradients and call each optimizer once per step."
        )
    on_servers = [v for v in discovery.order if not is_metric(v) and not is_seed(v)]
    program.variables = on_servers
    program.state = [v for v in on_servers if discovery.written(v)] if program.trains else []
    program.looked_up = [v for v in on_servers if discovery.looked_up(v)]
    discovery.refuse_to_densify(program.looked_up)
    program.metrics = [v for v in discovery.order if is_metric(v)]
    program.metrics += _untouched(program.merging, program.metrics)
    bases = [np.asarray(v._value.numpy()) for v in program.metrics]
    program.totals = MetricTotals(program.metrics, bases, program.merging)
    program.seeds = [v for v in discovery.order if is_seed(v)]
    program.draws_per_step = [discovery.draws.get(id(v), 0) for v in program.seeds]
    program.stages = stages
    program.results = StepResults(
        tf.nest.flatten(concrete.structured_outputs),
        handles=[discovery.copies[id(v)].handle for v in program.metrics],
        specs=[tf.TensorSpec(tuple(v.shape), v._dtype) for v in program.metrics],
    )
    program.outputs = tf.nest.map_structure(
        lambda t: tf.TensorSpec(t.shape, t.dtype) if isinstance(t, tf.Tensor) else t,
        concrete.structured_outputs,
    )
    refuse_strangers(program.variables)
    return program


def refuse_strangers(variables: Iterable[Any]) -> None:
    """Refuse Keras variables that exist already, and on no server.

    Raises:
        UnsupportedError: there is one; it names the first.
    """
    for variable in variables:
        if variable._value is not None and not hasattr(variable._value, "shared_name"):
            raise UnsupportedError(
                f"the variable {variable.path} was not created under strategy.scope(), so it lives "
                "on no parameter server. Create the model, its layers and its optimizer inside "
                "`with strategy.scope():`, and call enable_lora() and quantize() there."
            )
