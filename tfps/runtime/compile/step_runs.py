"""Traces a function that does several steps of a scheduled function, for closures that wait."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.closure_numbers import get_running_closure
from tfps.bridge.closures.run_plan import LEAST_STEPS, RunLimits, limit_steps
from tfps.bridge.closures.step_closure import StepClosure
from tfps.bridge.functions.chief_constant import chief_constant
from tfps.bridge.functions.traced_graph import iter_operations, list_captures
from tfps.consistency.applied_window import FUNCTION_CELLS, key_of_function
from tfps.partitioners.variable_spec import ITEM_BYTES
from tfps.runtime.coordinator.runtime import Runtime
from tfps.runtime.program.schedule import Regime
from tfps.runtime.worker.function_counts import KEY as COUNTS
from tfps.runtime.worker.function_counts import FunctionCounts
from tfps.transport.layout import Layout
from tfps.transport.packing import pack

MICROSECONDS = 1_000_000
RUN, DONE = "tfps_run", "done"
OWN_CAPTURES = (None, RUN, COUNTS, "tfps_worker_index", "tfps_life")
# Each kernel draws from a stream of its own, so that steps in a run would draw other numbers;
# summaries take the step of the program at the time when they are traced.
NOT_IN_RUNS = re.compile("Random|Multinomial|TruncatedNormal|Sampler|Rng|Summary")
_HEADER = 5  # worker, incarnation, first step, end, microseconds; then the keys of steps

logger = logging.getLogger(__name__)


def trace_in_background(closure: StepClosure, *, runtime: Runtime, limits: RunLimits) -> None:
    """Find out whether closures like one can run together, and trace the function for that."""
    kind = closure.kind
    kind.is_considered = True

    def trace() -> None:
        obstacle = find_obstacle(closure)
        run = TracedRun(closure, runtime=runtime, limits=limits) if not obstacle else None
        if run is not None and run.most_steps >= LEAST_STEPS:
            kind.run = run
            return
        reason = obstacle or "its outputs are large"
        logger.info("%s runs one by one: %s", closure.concrete.name, reason)

    threading.Thread(target=trace, name="tfps-trace", daemon=True).start()


def find_obstacle(closure: StepClosure) -> str:
    """Return why closures of a function run one by one; empty if several can run together."""
    graph, specs = closure.concrete.graph, tf.nest.flatten(closure.output_specs)
    programs = [servers[0].program for servers in private.get_kept_with_graph(graph)]
    if len(programs) != 1 or programs[0].schedule.regime != Regime.AT_ONCE:
        return "it is no function of variables on servers in the asynchronous mode"
    devices = programs[0].devices
    if len(devices.names) > 1 or not devices.use_main_memory:
        return "its steps run on several devices, or on a GPU"
    if not closure.is_fixed:
        return "its arguments may change"
    tensors = [spec for spec in specs if isinstance(spec, tf.TensorSpec)]
    fixed = [t for t in tensors if t.shape.is_fully_defined() and t.dtype.name in ITEM_BYTES]
    if len(fixed) + specs.count(None) < len(specs):
        return "an output has no fixed size"
    known = {id(variable._value.handle) for variable in programs[0].metrics}
    for key, captured in list_captures(closure.concrete):
        if key not in OWN_CAPTURES:
            return "it captures a value at each call"
        is_resource = key is None and captured.dtype in (tf.resource, tf.variant)
        if is_resource and id(captured) not in known:
            return "it uses a resource that does not know a step that comes again"
    for operation in iter_operations(graph):
        if operation.op_def.is_stateful and NOT_IN_RUNS.search(operation.type):
            return f"it draws random numbers or writes summaries ({operation.type})"
    return ""


class TracedRun:
    """A function that calls a scheduled function in a loop, with the number of each step.

    It is the function's own trace that is called, so nothing of the user is traced again. Variables
    on the chief, such as metrics, have copies on the worker while a run goes on: a step begins
    with what the steps before have made of them, as if it were alone.

    Args:
        closure: one of the closures; `find_obstacle` has found none.
        runtime: the runtime of its strategy.
        limits: the limits of runs.
    """

    def __init__(self, closure: StepClosure, *, runtime: Runtime, limits: RunLimits) -> None:
        self._step, self._runtime = closure.concrete, runtime
        self._servers = private.get_kept_with_graph(self._step.graph)[0]
        counts: list[FunctionCounts] = private.get_kept_with_graph(self._step.graph, COUNTS)
        self._counts, self.has_counts = counts[0] if counts else None, bool(counts)
        specs = [each for each in tf.nest.flatten(closure.output_specs) if each is not None]
        self._names = [f"output {index}" for index in range(len(specs))]
        entries = [(COUNTS, "uint8", (each.layout.size_bytes,)) for each in counts]
        for name, spec in zip(self._names, specs, strict=True):
            entries.append((name, spec.dtype.name, tuple(spec.shape)))
        self._layout = Layout.from_entries([(DONE, "uint8", ()), *entries])
        size, workers, cells = self._layout.size_bytes, runtime.workers, FUNCTION_CELLS
        self.most_steps = limit_steps(limits, step_bytes=size, workers=workers, cells=cells)
        self._shape = tf.TensorShape([self.most_steps, size])
        if self.most_steps >= LEAST_STEPS:
            signature = self._step.structured_input_signature[0]
            traced = tf.function(self._trace, autograph=False)
            self.concrete = traced.get_concrete_function(*signature)

    def create_rows(self) -> tf.Tensor:
        return private.create_variable_handle(
            shape=self._shape, dtype=tf.uint8, shared_name=private.ANONYMOUS_NAME
        )

    def count_done(self, rows: np.ndarray[Any, Any]) -> int:
        return int(self._split(rows)[DONE].sum())

    def decode(self, rows: np.ndarray[Any, Any]) -> Sequence[Sequence[tf.Tensor]]:
        values = self._split(rows)
        arrays = [values[name] for name in self._names]
        return [[chief_constant(a[step], a.dtype) for a in arrays] for step in range(len(rows))]

    def apply_counts(self, rows: np.ndarray[Any, Any]) -> None:
        if self._counts is not None:
            self._counts.apply_all(self._split(rows)[COUNTS])

    def _split(self, rows: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return what steps have left, by name, with an axis of steps in front."""
        arrays = {}
        for block in self._layout.blocks:
            dtype = tf.as_dtype(block.dtype)
            for segment in block.segments:
                begin = block.offset_bytes + segment.offset_items * dtype.size
                part = np.ascontiguousarray(rows[:, begin : begin + segment.items * dtype.size])
                array = part.view(dtype.as_numpy_dtype)
                arrays[segment.name] = array.reshape([len(rows), *segment.shape])
        return arrays

    def _make_header(self) -> tf.Tensor:
        """Return what a call of the function needs to know, on the chief."""
        run = get_running_closure()
        member = self._runtime.membership.get_member(private.get_worker_index())
        get_number = self._runtime.closure_numbers.get_number
        keys = [key_of_function(get_number(each), 0) for each in run.members]
        header = [*member, run.begin, len(keys), int(run.longest_s * MICROSECONDS), *keys]
        header += [0] * (self.most_steps - len(keys))
        return chief_constant(header, tf.int64)

    def _trace(self, *arguments: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Trace the steps of a run; return how many have ended, and the rows of all."""
        private.keep_with_graph(self._servers)
        graph: Any = private.current_graph()
        spec = tf.TensorSpec([_HEADER + self.most_steps], tf.int64)
        header = graph.capture_call_time_value(self._make_header, spec, key="tfps_steps")
        member, first, steps, longest = header[:2], header[2], header[3], header[4]
        rows = graph.capture_call_time_value(
            lambda: get_running_closure().rows, tf.TensorSpec([], tf.resource), key="tfps_rows"
        )
        inputs = tf.nest.flatten(arguments, expand_composites=True)
        captures = _StepCaptures(self._step, self._servers[0].program, self._counts)
        until = tf.timestamp() + tf.cast(longest, tf.float64) / MICROSECONDS

        def goes_on(step: tf.Tensor) -> tf.Tensor:
            in_time = tf.logical_or(tf.equal(step, first), tf.timestamp() < until)
            return tf.logical_and(step < steps, in_time)

        def body(step: tf.Tensor) -> tf.Tensor:
            run = tf.concat([member, [header[_HEADER + tf.cast(step, tf.int32)]]], 0)
            outputs, call = self._call([*inputs, *captures.list_tensors(run)])
            with tf.control_dependencies([call]):
                left = {DONE: tf.ones([], tf.uint8), **captures.read_counts()}
                row = pack(self._layout, {**left, **dict(zip(self._names, outputs, strict=True))})
                kept = tf.raw_ops.ResourceScatterUpdate(resource=rows, indices=step, updates=row)
            with tf.control_dependencies([kept]):
                return step + 1

        blank, write = tf.zeros(self._shape, tf.uint8), tf.raw_ops.AssignVariableOp
        tf.cond(tf.equal(first, 0), lambda: write(resource=rows, value=blank), tf.no_op)
        (done,) = tf.while_loop(goes_on, body, [first], parallel_iterations=1)
        with tf.control_dependencies([done]):
            return done, tf.raw_ops.ReadVariableOp(resource=rows, dtype=tf.uint8)

    def _call(self, arguments: Sequence[tf.Tensor]) -> tuple[Sequence[tf.Tensor], Any]:
        """Call the function, with values for what it captures; return its outputs, and the call.

        Called as usual, the function would evaluate its captures in the current graph.
        """
        self._step.add_to_graph(private.current_graph())
        dtypes = [tensor.dtype for tensor in self._step.outputs]
        called = tf.compat.v1.NameAttrList(name=self._step.name)
        outputs = tf.raw_ops.StatefulPartitionedCall(args=arguments, Tout=dtypes, f=called)
        return (outputs, outputs[0].op) if dtypes else ((), outputs)


class _StepCaptures:
    """The captures of a function, for its calls in a run, with copies of the chief's variables."""

    def __init__(self, step: Any, program: Any, counts: FunctionCounts | None) -> None:
        self._counts = counts
        self._copies, places = dict[int, Any](), dict[int, tf.Tensor]()
        for variable in program.metrics:
            native = variable._value
            copy = private.create_anonymous_variable(shape=native.shape, dtype=native.dtype)
            copy.assign(native.read_value(), read_value=False)
            self._copies[id(variable)], places[id(native.handle)] = copy, copy.handle
        size = 0 if counts is None else counts.layout.size_bytes
        self._payload = private.create_anonymous_variable(shape=[size], dtype=tf.uint8)
        self._tensors: list[Any] = []
        for key, captured in list_captures(step):
            if key is None:
                self._tensors.append(places.get(id(captured), captured))
            elif key == COUNTS:
                self._tensors.append(self._payload.handle)
            else:
                self._tensors += [None] if key == RUN else captured()

    def list_tensors(self, run: tf.Tensor) -> list[tf.Tensor]:
        """Return the tensors for a call of a step; ``run`` is its identity."""
        return [run if tensor is None else tensor for tensor in self._tensors]

    def read_counts(self) -> dict[str, tf.Tensor]:
        """Return what a step that has ended has left for the chief; the next one sees it."""
        if self._counts is None:
            return {}
        payload = self._payload.read_value()
        self._counts.change([self._copies[id(v)] for v in self._counts.variables], payload)
        return {COUNTS: payload}
