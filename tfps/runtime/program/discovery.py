"""Traces a step for the first time, to find its variables and optimizer calls."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.step_scope import StepScope, is_global_generator, outside_step
from tfps.bridge.variables.linear_part import Factor
from tfps.bridge.variables.worker_variable import WorkerVariable
from tfps.consistency.ledger import MAX_CALLS
from tfps.errors import UnsupportedError
from tfps.optimizers.loss_scaling import get_loss_scale
from tfps.optimizers.optimizer_call import OptimizerCall
from tfps.optimizers.sparse_updates import refuse_to_densify
from tfps.optimizers.wrapped import get_nested_optimizers
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.coordinator.worker_error import refuse_python_functions
from tfps.runtime.program.devices import Devices, ReplicaBarrier
from tfps.runtime.program.draw_seeds import DrawSeeds
from tfps.runtime.program.metric_states import MetricStates
from tfps.runtime.program.pace import Assignment, MovingPace, find_pace
from tfps.runtime.program.program import Program, is_metric, is_seed, refuse_outside_scope
from tfps.runtime.program.step_results import StepResults, describe_output
from tfps.runtime.program.synchronized import warn_of_synchronized


class TracedStrategy(Protocol):
    """The part of a strategy that the trace of a step uses."""

    runtime: Runtime
    devices: Devices

    def scope(self) -> AbstractContextManager[Any]:
        """Return the context in which variables are created."""


class Discovery:
    """A step trace that only records what the step does (see `bridge.step_scope.StepTrace`).

    Args:
        looks_up_nested: whether rows of tables can be looked up in nested functions and loops, too.
    """

    position = None  # it has no ticket

    def __init__(self, strategy: TracedStrategy, *, looks_up_nested: bool = False) -> None:
        self.strategy = strategy
        self.graph = private.current_graph()
        self.found_variables: list[Any] = []
        self.copies: dict[int, WorkerVariable] = {}
        self.draws: dict[int, int | None] = {}  # see `Program.draws_per_step`
        self.draw_seeds: DrawSeeds | None = None
        self.calls: list[OptimizerCall] = []
        self._centers: dict[int, Any] = {}  # the mean's variable, by the id of the variance
        self.normalizing: list[Any] = []  # layers that normalize by the statistics of their batch
        self._assignments: defaultdict[int, list[Assignment]] = defaultdict(list)
        self.barrier = ReplicaBarrier(self, shares=[tf.constant(1.0)] * len(strategy.devices.names))
        self.needs_final_exchange = True
        self._gradients: list[tuple[Any, Any, Any]] = []  # optimizer, gradient, variable
        self._looks_up_nested = looks_up_nested
        self._looked_up_in: defaultdict[int, set[Any]] = defaultdict(set)  # the graphs
        self._tables: set[int] = set()
        self._dense: set[int] = set()  # variables with dense gradients
        self._trained_in: defaultdict[int, set[Any]] = defaultdict(set)

    def get_copy(self, keras_variable: Any) -> WorkerVariable:
        if id(keras_variable) not in self.copies:
            self.initialize([keras_variable])
            with self.graph.as_default():
                self.copies[id(keras_variable)] = copy = WorkerVariable(keras_variable)
            if not is_metric(keras_variable) and not is_seed(keras_variable):
                copy.on_assignment = partial(self._note_assignment, id(keras_variable))
            self.found_variables.append(keras_variable)
        return self.copies[id(keras_variable)]

    def initialize(self, keras_variables: Iterable[Any]) -> None:
        """Give variables that the step has made their first values, unless they have them."""
        for variable in keras_variables:
            if variable._value is None:
                with outside_step(), self.strategy.scope():
                    variable._deferred_initialize()

    def _note_assignment(self, key: int, kept: Factor | None) -> None:
        is_nested = private.current_graph() is not self.graph
        self._assignments[key].append(Assignment(kept, is_nested))

    def assign(self, keras_variable: Any, value: Any) -> None:
        self.get_copy(keras_variable).assign(value)
        if is_seed(keras_variable):
            self._count_draw(keras_variable)
        elif not is_metric(keras_variable):
            self.needs_final_exchange = True

    def _count_draw(self, generator: Any) -> None:
        counts = private.current_graph() is self.graph and not is_global_generator(generator)
        known = self.draws.get(id(generator), 0)
        self.draws[id(generator)] = known + 1 if counts and known is not None else None

    def draw_seed(self) -> tf.Tensor | None:
        """Return a seed, or None for the only worker, which draws as Keras does in one process."""
        if self.strategy.runtime.workers == 1:
            return None
        self.draw_seeds = self.draw_seeds or DrawSeeds()
        return self.draw_seeds.next()

    def get_copy_on(self, device: int, keras_variable: Any) -> WorkerVariable:
        return self.get_copy(keras_variable)

    def look_up(self, keras_variable: Any, ids: tf.Tensor) -> tf.Tensor | None:
        graph = private.current_graph()
        self._tables.add(id(keras_variable))
        if graph is not self.graph and not self._looks_up_nested:
            return None
        value = self.get_copy(keras_variable)
        self._looked_up_in[id(keras_variable)].add(graph)
        return tf.gather(value, ids)

    def look_up_on(self, device: int, keras_variable: Any, ids: tf.Tensor) -> tf.Tensor | None:
        """Return None: in a function that several devices divide, each has the whole table."""
        return None

    def keeps_row_gradients(self, keras_variable: Any) -> bool:
        return False

    def on_normalization(self, layer: Any, *, uses_whole_batch: bool) -> None:
        self.normalizing.append(layer)
        if uses_whole_batch and not getattr(layer, "renorm", False):  # of Keras 3.14
            self._centers[id(layer.moving_variance)] = layer.moving_mean

    def on_graph_complete(self, graph: Any) -> None:
        """Do nothing: no look-up is delayed."""

    def merge_replicas(self, function: Callable[..., Any], tensors: Sequence[tf.Tensor]) -> Any:
        return function(list(tensors))

    def apply_parts(self, optimizer: Any, parts: Sequence[Any], variables: Sequence[Any]) -> None:
        self.apply(optimizer, parts[0], variables)

    def run_parts(self, run: Callable[[], Any]) -> Any:
        return run()

    def apply(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        variables = list(variables if variables is not None else optimizer._trainable_variables)
        if not optimizer.built:
            with outside_step(), self.strategy.scope():
                optimizer.build(variables)
        elif get_nested_optimizers(optimizer) == [optimizer]:
            optimizer._check_variables_are_known(variables)
        pairs = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
        if not pairs:
            refuse_python_functions(self.graph)  # these stop every gradient
            raise ValueError(
                "No gradients provided for any variable: "
                f"{[variable.path for variable in variables]}. Does the loss depend on them?"
            )
        without = [v.path for g, v in zip(gradients, variables, strict=True) if g is None]
        if without:  # Keras's text, since programs look for it or silence it
            warnings.warn(
                f"Gradients do not exist for variables {without} when minimizing the loss. If using"
                " `model.compile()`, did you forget to provide a `loss` argument?",
                stacklevel=2,
            )
        for gradient, variable in pairs:
            self.get_copy(variable)
            if not isinstance(gradient, tf.IndexedSlices):
                self._dense.add(id(variable))
            self._trained_in[id(variable)].add(private.current_graph())
            self._gradients.append((optimizer, gradient, variable))
        scale = get_loss_scale(optimizer)
        if scale is not None:
            self.get_copy(scale)  # a push always has the scale, even if the step has not read it
        self.calls.append(OptimizerCall(optimizer, tuple(variable for _, variable in pairs)))
        # An optimizer call inside tf.cond or a nested function cannot carry the next ticket out.
        self.needs_final_exchange = private.current_graph() is not self.graph

    def is_only_looked_up(self, keras_variable: Any) -> bool:
        """Return whether the step looks up rows of a variable and never needs all of it."""
        copy, trained_in = self.copies[id(keras_variable)], self._trained_in[id(keras_variable)]
        graphs = self._looked_up_in[id(keras_variable)]
        if copy.is_read or copy.is_assigned or not graphs:
            return False
        if len(graphs) == 1:
            return trained_in <= graphs
        # Gradients of rows that were looked up in a branch or a loop are dense outside of it.
        return trained_in <= graphs and id(keras_variable) not in self._dense

    def is_read_whole(self, keras_variable: Any) -> bool:
        """Return whether the step looks up rows of a variable and also needs all of it."""
        return id(keras_variable) in self._tables and not self.is_only_looked_up(keras_variable)

    def refuse_to_densify(self, tables: Iterable[Any]) -> None:
        """Raise an error if a row-wise optimizer trains variables other than the given tables.

        Not in the trace, where AutoGraph would change the error.
        """
        travel = {id(table) for table in tables}
        for optimizer, gradient, variable in self._gradients:
            if id(variable) not in travel:
                refuse_to_densify(optimizer, gradient, variable)

    def iter_changes(self) -> Iterator[tuple[Any, list[Any]]]:
        """Yield the variables that the step changes, each with its gradients or its resource."""
        for _, gradient, variable in self._gradients:
            yield variable, [*tf.nest.flatten(gradient, expand_composites=True)]
        for variable in self.found_variables:
            if self.is_written(variable) and not is_metric(variable):
                yield variable, [self.copies[id(variable)].handle]

    def is_written(self, keras_variable: Any) -> bool:
        return self.copies[id(keras_variable)].is_assigned

    @property
    def centers(self) -> dict[int, Any]:
        """A mapping from ids of moving variances to the variables of their means."""
        return dict(self._centers)

    def compute_paces(self, variables: Iterable[Any]) -> dict[int, MovingPace]:
        """Return the paces of variables, by id; variables that optimizers update are left out."""
        devices = len(self.strategy.devices.names)
        paces = {
            id(v): find_pace(v, self._assignments[id(v)], devices=devices)
            for v in variables
            if not self._trained_in[id(v)]
        }
        return {key: pace for key, pace in paces.items() if pace is not None}


def discover_program(program: Program, strategy: TracedStrategy) -> Program:
    """Trace the step once into a temporary graph, and return the program with what was found.

    Raises:
        UnsupportedError: more optimizer calls in a step than a ticket can number, or a call of a
            Python function.
    """
    discoveries: list[Discovery] = []

    def trace(data: Any) -> Any:  # Keras's name, which TensorFlow's messages quote
        discovery = Discovery(strategy)
        discoveries[:] = [discovery]
        with private.default_replica_context():
            with StepScope(discovery) as scope:
                outputs = program.step(data)
            discovery.initialize(scope.created_variables)  # those that the step never reads, too
            return outputs

    concrete = tf.function(trace, autograph=False).get_concrete_function(program.batch_spec)
    refuse_python_functions(concrete.graph)
    discovery = discoveries[0]
    warn_of_synchronized(discovery.normalizing, workers=strategy.runtime.workers)
    calls = discovery.calls
    on_servers = [v for v in discovery.found_variables if not is_metric(v) and not is_seed(v)]
    state = [v for v in on_servers if discovery.is_written(v)]
    # A layer may count in `predict` too, and a `test_step` may assign weights or train.
    changes_variables = program.changes_variables or bool(calls or state)
    if changes_variables and discovery.needs_final_exchange:
        calls.append(OptimizerCall(None))
    if len(calls) > MAX_CALLS:
        raise UnsupportedError(
            f"received a training step that calls optimizers {len(calls)} times, expected at most "
            f"{MAX_CALLS}. Collect the gradients and call each optimizer once per step."
        )
    looked_up = [v for v in on_servers if discovery.is_only_looked_up(v)]
    discovery.refuse_to_densify(looked_up)
    states = MetricStates(
        discovery.graph,
        touched=[v for v in discovery.found_variables if is_metric(v)],
        metrics=program.keras_metrics,
        handle_of=lambda variable: discovery.get_copy(variable).handle,
    )
    if changes_variables and not program.is_sequential:
        states.refuse_uses(discovery.iter_changes())
    seeds = [v for v in discovery.found_variables if is_seed(v)]
    draws = [discovery.draws.get(id(v), 0) for v in seeds]
    refuse_outside_scope(on_servers)
    return replace(
        program,
        changes_variables=changes_variables,
        variables=on_servers,
        state=state,
        paces=discovery.compute_paces(state),
        centers=discovery.centers,
        looked_up=looked_up,
        read_whole=[v for v in on_servers if discovery.is_read_whole(v)],
        metrics=states.variables,
        totals=states.create_totals(
            is_sequential=program.is_sequential, generators=draws.count(None)
        ),
        seeds=seeds,
        draws_per_step=draws,
        draw_seeds=discovery.draw_seeds,
        calls=calls,
        results=StepResults(
            tf.nest.flatten(concrete.structured_outputs), handles=states.handles, specs=states.specs
        ),
        outputs=tf.nest.map_structure(describe_output, concrete.structured_outputs),
    )
