"""A first trace of a step, which only notes what the step does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.step_scope import StepScope, outside_the_step
from tfps.bridge.worker_variable import WorkerVariable
from tfps.consistency.ledger import MAX_CALLS
from tfps.errors import UnsupportedError
from tfps.metrics.merging import Merging
from tfps.optimizers.optimizer_call import OptimizerCall
from tfps.optimizers.row_updates import refuse_to_densify
from tfps.optimizers.wrapped import members
from tfps.runtime.coordinator.worker_error import refuse_python_functions
from tfps.runtime.program.devices import Meeting, Replica
from tfps.runtime.program.metric_totals import MetricTotals
from tfps.runtime.program.program import Program, is_metric, is_seed, refuse_strangers
from tfps.runtime.program.step_results import StepResults


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
        self.calls: list[OptimizerCall] = []
        self._meeting = Meeting(self, shares=[tf.constant(1.0)] * len(strategy.devices.names))
        self.needs_final_exchange = True
        self._gradients: list[tuple[Any, Any, Any]] = []  # optimizer, gradient, variable
        self._looks_up_nested = looks_up_nested
        self._looked_up: dict[int, list[Any]] = {}  # in which graphs
        self._trained_in: dict[int, list[Any]] = {}
        self._written: set[int] = set()

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
            self.needs_final_exchange = True

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
        self.calls.append(OptimizerCall(optimizer, present))
        # An optimizer call inside tf.cond or a nested function cannot carry the next ticket out.
        self.needs_final_exchange = private.current_graph() is not self.graph

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
    """Trace the step once into a graph that is thrown away; answers the program with what it does.

    Args:
        program: the step, and what is known of it without a trace.
        strategy: ours.

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
    calls = discovery.calls
    if program.trains and discovery.needs_final_exchange:
        calls = [*calls, OptimizerCall(None)]
    if len(calls) > MAX_CALLS:
        raise UnsupportedError(
            f"the training step calls optimizers {len(calls)} times; expected at most "
            f"{MAX_CALLS}. Collect the gradients and call each optimizer once per step."
        )
    on_servers = [v for v in discovery.order if not is_metric(v) and not is_seed(v)]
    looked_up = [v for v in on_servers if discovery.looked_up(v)]
    discovery.refuse_to_densify(looked_up)
    metrics = [v for v in discovery.order if is_metric(v)]
    metrics += _untouched(program.merging, metrics)
    bases = [np.asarray(v._value.numpy()) for v in metrics]
    seeds = [v for v in discovery.order if is_seed(v)]
    refuse_strangers(on_servers)
    return replace(
        program,
        variables=on_servers,
        state=[v for v in on_servers if discovery.written(v)] if program.trains else [],
        looked_up=looked_up,
        metrics=metrics,
        totals=MetricTotals(metrics, bases, program.merging),
        seeds=seeds,
        draws_per_step=[discovery.draws.get(id(v), 0) for v in seeds],
        calls=calls,
        results=StepResults(
            tf.nest.flatten(concrete.structured_outputs),
            handles=[discovery.copies[id(v)].handle for v in metrics],
            specs=[tf.TensorSpec(tuple(v.shape), v._dtype) for v in metrics],
        ),
        outputs=tf.nest.map_structure(
            lambda t: tf.TensorSpec(t.shape, t.dtype) if isinstance(t, tf.Tensor) else t,
            concrete.structured_outputs,
        ),
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
