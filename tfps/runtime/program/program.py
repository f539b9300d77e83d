"""Describes a step of a model as data: its variables, and its optimizer calls in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.variables.shards import get_all_shards, get_shards
from tfps.errors import UnsupportedError
from tfps.optimizers.optimizer_call import OptimizerCall, collect_optimizers
from tfps.optimizers.wrapped import get_nested_optimizers
from tfps.runtime.program.devices import Devices
from tfps.runtime.program.draw_seeds import DrawSeeds
from tfps.runtime.program.metric_totals import MetricTotals
from tfps.runtime.program.pace import MovingPace
from tfps.runtime.program.schedule import Schedule
from tfps.runtime.program.step_results import StepResults

_UNKNOWN = object()  # instead of an output that no worker has returned yet


def is_metric(variable: Any) -> bool:
    """Return whether a variable is metric state, which alone Keras creates to be summed on read."""
    return bool(variable.synchronization == "on_read")


def is_seed(variable: Any) -> bool:
    """Return whether a variable is the state of a `keras.random.SeedGenerator`."""
    return bool(variable.name == "seed_generator_state")


@dataclass(frozen=True)
class Program:
    """A step as data: found by tracing it once, then compiled for workers and servers."""

    name: str  # distinguishes the programs of one job
    step: Callable[[Any], Any]  # the model's own step, from a batch to logs
    batch_spec: Any  # structure of `tf.TypeSpec` of a batch
    changes_variables: bool  # whether its steps push: the steps of `fit`, and all that assign
    keras_metrics: Sequence[Any] = ()  # of the model; the step may touch other metrics, too
    variables: Sequence[Any] = ()  # Keras variables that live on servers and are pulled
    state: Sequence[Any] = ()  # the variables that the step assigns itself, such as moving averages
    # How steps move that state, by id of the variable; for the rest only the new value is known.
    paces: Mapping[int, MovingPace] = field(default_factory=dict)
    # For variances that the step averages, by id of the variable: the variable of their centers.
    centers: Mapping[int, Any] = field(default_factory=dict)
    metrics: Sequence[Any] = ()  # metric state, accumulated on the ticket server
    is_sequential: bool = False  # whether its steps run one after the other
    # The report of a step's metrics.
    totals: MetricTotals = field(default_factory=lambda: MetricTotals([], []))
    # Seed generators, and the number of a step's draws from each; None: it varies, in a loop or a
    # branch.
    seeds: Sequence[Any] = ()
    draws_per_step: Sequence[int | None] = ()
    draw_seeds: DrawSeeds | None = None  # seeds of `tf.random` in a step; None: left to TensorFlow
    # The exchanges of a step in order; empty for a step that changes no variable.
    calls: Sequence[OptimizerCall] = ()
    outputs: Any = None  # the structure that the step returns, as specs
    results: StepResults | None = None  # which outputs are results of metrics
    # The devices of every worker, which divide a step.
    devices: Devices = field(default_factory=Devices)
    # Variables of which the step only looks up rows.
    looked_up: Sequence[Any] = ()
    # Tables that it also reads as a whole, or looks up where workers cannot.
    read_whole: Sequence[Any] = ()
    schedule: Schedule = field(default_factory=Schedule)  # how workers go through its steps
    stops_at_nan: bool = False  # whether a worker stops after a loss that is not finite

    @property
    def optimizer_calls(self) -> Sequence[OptimizerCall]:
        """The calls of optimizers in a step, on servers or on workers."""
        local = self.schedule.local
        calls = self.calls if local is None else local.calls
        return [call for call in calls if call.optimizer is not None]

    @property
    def moved_variables(self) -> list[Any]:
        """The assigned variables whose pace is known."""
        return [variable for variable in self.state if id(variable) in self.paces]

    @property
    def mixed_variables(self) -> list[Any]:
        """The other assigned variables with real numbers, in which workers' changes mix."""
        others = [variable for variable in self.state if id(variable) not in self.paces]
        return [variable for variable in others if variable._value.dtype.is_floating]

    @property
    def centers_in_rounds(self) -> Mapping[int, Any]:
        """The mean variables of the variances that a round computes over all examples, by id."""
        schedule = self.schedule
        if not schedule.in_rounds or schedule.local is not None:
            return {}
        paces = self.paces
        return {
            key: center
            for key, center in self.centers.items()
            if all(key in paces and paces[key].is_assigned_once for key in (key, id(center)))
        }

    @property
    def changing_variables(self) -> list[Any]:
        """The variables that pushes change, or that share a slab with one that changes.

        The reply to a push brings these; all others are unchanged. A slab travels as a whole.
        """
        optimizers = [
            m
            for o in collect_optimizers(self.optimizer_calls)
            for m in (o, *get_nested_optimizers(o))
        ]
        changed = {
            id(variable)
            for changes in (
                self.state,
                *(call.variables for call in self.calls),
                *(optimizer.variables for optimizer in optimizers),
            )
            for variable in changes
        }
        slabs = {
            id(shard._value.slab)
            for shard in get_all_shards(v for v in self.variables if id(v) in changed)
            if shard._value.slab is not None
        }
        return [
            variable
            for variable in self.variables
            if id(variable) in changed
            or any(id(shard._value.slab) in slabs for shard in get_shards(variable))
        ]

    def get_changed_variables(self, call: OptimizerCall) -> list[Any]:
        """Return the variables that an optimizer call changes: weights and optimizer variables.

        A count of updates, slots and a loss scale, if the step reads them; no learning rate.
        """
        optimizer_ids: set[int] = set()
        if isinstance(call.optimizer, keras.optimizers.Optimizer):
            members = get_nested_optimizers(call.optimizer)
            optimizer_ids = {id(v) for member in members for v in member.variables}
            optimizer_ids -= {id(member._learning_rate) for member in members}
        optimizer_ids -= {id(variable) for variable in call.variables}
        return [*call.variables, *(v for v in self.variables if id(v) in optimizer_ids)]

    @property
    def metric_items(self) -> int:
        return self.totals.items

    @property
    def numeric_outputs(self) -> list[tf.TensorSpec]:
        """The outputs that a step reports; the chief computes results of metrics from their totals.

        Not if steps run in turn: then a step has the state of all steps.
        """
        computed = () if self.results is None or self.is_sequential else self.results.computable
        return [
            spec
            for position, spec in enumerate(tf.nest.flatten(self.outputs))
            if position not in computed
            and isinstance(spec, tf.TensorSpec)
            and spec.shape.is_fully_defined()
            and (spec.dtype.is_numeric or spec.dtype.is_bool)
        ]

    @property
    def serialized_outputs(self) -> dict[int, tf.TypeSpec]:
        """The outputs that no report can hold, by position: workers return those of a last step."""
        if not isinstance(self.outputs, dict) or self.results is None:
            return {}
        known, computable = {*map(id, self.numeric_outputs)}, self.results.computable
        others = {p: s for p, s in enumerate(tf.nest.flatten(self.outputs)) if id(s) not in known}
        specs = {p: s for p, s in others.items() if isinstance(s, tf.TypeSpec)}
        return {position: spec for position, spec in specs.items() if position not in computable}

    @property
    def output_items(self) -> int:
        """The number of items of a report's outputs: the ticket of the step is the first."""
        return sum(map(count_items, self.numeric_outputs), 1) if self.numeric_outputs else 0

    def compute_logs(
        self, model: Any, reported: np.ndarray[Any, Any], serialized: Sequence[bytes], *, chief: str
    ) -> dict[str, Any]:
        """Compute Keras's logs of a whole run; outputs without a metric are those of the last step.

        Args:
            model: the model, with the totals of metrics.
            reported: the numbers that the last step has reported.
            serialized: a ticket, and its other outputs; empty until a worker has returned them.
            chief: the chief's device.
        """
        outputs, results = self.outputs, self.results
        if not isinstance(outputs, dict) or results is None:
            return dict(model.get_metrics_result())
        flat, values, offset = tf.nest.flatten(outputs), list[Any](), 1  # after the ticket
        numeric = {id(spec) for spec in self.numeric_outputs}
        with private.placed_on(chief):
            known = dict(results.compute([v._value.read_value() for v in self.metrics]))
            known.update(self._parse_outputs(serialized[1:]) if serialized else {})
            for position, spec in enumerate(flat):
                value = known.get(position, _UNKNOWN) if isinstance(spec, tf.TypeSpec) else spec
                if id(spec) in numeric:
                    part = reported[offset : offset + count_items(spec)]
                    offset += len(part)
                    part = part.view(np.complex128) if spec.dtype.is_complex else part
                    value = part.reshape(spec.shape).astype(spec.dtype.as_numpy_dtype)
                values.append(tf.constant(value) if isinstance(value, np.ndarray) else value)
        logs = dict(tf.nest.pack_sequence_as(outputs, values))
        if results.not_computable and not self.is_sequential:
            own_logs = model.get_metrics_result()
            others = tf.nest.pack_sequence_as(
                outputs, [position in results.not_computable for position in range(len(values))]
            )
            logs.update({name: own_logs[name] for name in own_logs if others.get(name) is True})
        return {
            name: value
            for name, value in logs.items()
            if all(each is not _UNKNOWN for each in tf.nest.flatten(value))
        }

    def _parse_outputs(self, serialized: Sequence[bytes]) -> dict[int, Any]:
        """Return the outputs that a worker has returned, by position."""
        positions, specs = [*self.serialized_outputs], [*self.serialized_outputs.values()]
        flat = tf.nest.flatten(specs, expand_composites=True)
        parts = [tf.io.parse_tensor(d, s.dtype) for d, s in zip(serialized, flat, strict=True)]
        packed = tf.nest.pack_sequence_as(specs, parts, expand_composites=True)
        return dict(zip(positions, packed, strict=True))

    def with_schedule(self, **changes: Any) -> Program:
        """Return the program with some fields of its schedule changed."""
        return replace(self, schedule=replace(self.schedule, **changes))


def count_items(spec: tf.TensorSpec) -> int:
    """Return how many real numbers report a tensor."""
    return int(np.prod(spec.shape)) * (2 if spec.dtype.is_complex else 1)


def refuse_outside_scope(variables: Iterable[Any]) -> None:
    """Raise an `UnsupportedError` for the first existing Keras variable that is on no server."""
    for variable in variables:
        if variable._value is not None and not hasattr(variable._value, "shared_name"):
            raise UnsupportedError(
                f"{variable.path}: received a variable from outside of strategy.scope(), expected "
                "one on a parameter server. Create the model, its layers and its optimizer "
                "inside `with strategy.scope():`, and call enable_lora() and quantize() there. A "
                "TFSMLayer keeps those of its file: train the model that was exported instead."
            )
