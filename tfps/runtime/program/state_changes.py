"""Finds from a step's graph how the step changes metric states, for every batch."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.functions.traced_graph import get_called_graph, get_function_graph
from tfps.metrics.state_change import INDEPENDENT, MIXED, Change, Origin, either, relation_after
from tfps.runtime.program.step_results import CALLS, READ

PASS_THROUGH = frozenset(
    {"Identity", "IdentityN", "StopGradient", "PreventGradient", "EnsureShape", "Snapshot"}
)
METADATA_OPERATIONS = frozenset({"VarIsInitializedOp", "VariableShape"})
BRANCH_OPERATIONS = {
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
    **dict.fromkeys(("Case", "StatelessCase"), ("branches",)),
}
WRITES = re.compile("^(Assign|ResourceScatter|ResourceApply|ResourceStridedSliceAssign)")
LOOPS = ("While", "StatelessWhile")


class _Handle(NamedTuple):
    """A resource that holds a state."""

    state: int


class _Resource(NamedTuple):
    """Another resource of the step."""

    handle: Any


# The knowledge about a tensor.
_Known = Origin | _Handle | _Resource


class StateChanges:
    """Walks through the graph of a step, and records how each value depends on states.

    Only the graph counts: a rule that holds for some batches is none. A change that is not known to
    be a sum, a maximum or a minimum is `Change.MIXED`.

    Args:
        graph: the graph of the step.
        handles: the handles of the states.
        specs: the specs of the states.

    Attributes:
        changes: the change of each state by the whole step.
    """

    def __init__(
        self, graph: Any, *, handles: Sequence[tf.Tensor], specs: Sequence[tf.TensorSpec]
    ) -> None:
        self._now = [Origin(Change.KEPT, state) for state in range(len(handles))]
        self._seen: dict[Any, Origin] = {}
        self._is_chosen = False  # whether a state decides if the current operations run at all
        self._chosen: set[Any] = set()  # the graphs for which that holds
        self._written: list[Any] = []
        self._shapes = [spec.shape for spec in specs]
        known: dict[Any, _Known] = {h.ref(): _Handle(i) for i, h in enumerate(handles)}
        if known:
            self._walk(graph, known)
        self.changes = [origin.change for origin in self._now]

    def depends_on_state(self, tensor: tf.Tensor) -> bool:
        """Return whether a tensor depends on a state, or a state decides if it is computed.

        For another resource: whether a value that is written to it, or the fact of the write, does.
        """
        if not self.changes or not tf.is_symbolic_tensor(tensor):
            return False
        if tensor.dtype == tf.resource:
            return any(handle is tensor for handle in self._written)
        seen = self._seen.get(tensor.ref(), MIXED)
        return seen != INDEPENDENT or tensor.graph in self._chosen

    def _walk(self, graph: Any, known: dict[Any, _Known]) -> None:
        """Walk through a graph, given how some of its tensors depend on states."""
        if self._is_chosen:
            self._chosen.add(graph)
        for operation in _order_operations(graph):
            if all(output.ref() in known for output in operation.outputs) and operation.outputs:
                continue  # an input of a function, or the handle of a state
            inputs = [known.get(each.ref(), MIXED) for each in operation.inputs]
            outputs = self._find_outputs(operation, inputs)
            known.update(zip((o.ref() for o in operation.outputs), outputs, strict=True))
        for tensor, value in known.items():
            if isinstance(value, Origin):
                before = self._seen.get(tensor)
                self._seen[tensor] = value if before is None else either(value, before)

    def _find_outputs(self, operation: Any, inputs: list[_Known]) -> Sequence[_Known]:
        kind, outputs = operation.type, len(operation.outputs)
        if outputs == 1 and not inputs and operation.outputs[0].dtype == tf.resource:
            return [_Resource(operation.outputs[0])]
        if kind in CALLS:
            return self._walk_call(get_called_graph(operation), inputs)
        if kind in BRANCH_OPERATIONS:
            return self._walk_branches(operation, inputs)
        if kind in LOOPS:
            return self._walk_loop(operation, inputs)
        if kind in PASS_THROUGH:
            return inputs[:outputs]
        handles = [each for each in inputs if isinstance(each, _Handle)]
        if handles:
            return [self._apply_access(operation, handles, inputs)] * outputs
        if kind in ("Select", "SelectV2") and inputs[0] == INDEPENDENT:
            return [_merge_known(inputs[1], inputs[2])]
        if self._passes_on(operation, inputs):
            return inputs[:1]
        origins = [_to_origin(each) for each in inputs]
        if WRITES.search(kind) and (
            self._is_chosen or relation_after(kind, origins) != INDEPENDENT
        ):
            self._written += [each.handle for each in inputs if isinstance(each, _Resource)]
        return [relation_after(kind, origins)] * outputs

    def _apply_access(self, operation: Any, handles: list[_Handle], inputs: list[_Known]) -> Origin:
        """Record the change by an operation that reads or writes a state; return its result."""
        state, others = handles[0].state, [_to_origin(each) for each in inputs[1:]]
        if operation.type in METADATA_OPERATIONS:
            return INDEPENDENT
        if operation.type == READ:
            return self._now[state]
        if operation.type == "AssignVariableOp":
            self._now[state] = others[0]
            return INDEPENDENT
        for handle in handles:
            origin = relation_after(operation.type, [self._now[handle.state], *others])
            self._now[handle.state] = MIXED if handle is not inputs[0] else origin
        return MIXED

    def _passes_on(self, operation: Any, inputs: list[_Known]) -> bool:
        """Return whether an operation changes a shape or a type, but no number."""
        if operation.type not in ("Reshape", "Cast") or inputs[0] == INDEPENDENT:
            return False
        tensor, result = operation.inputs[0], operation.outputs[0]
        if operation.type == "Cast":
            is_wide = all(each.dtype.is_floating for each in (tensor, result))
            return is_wide or tensor.dtype == result.dtype
        state = _to_origin(inputs[0]).state
        is_same = state is not None and result.shape.is_fully_defined()
        return is_same and result.shape == tensor.shape == self._shapes[state or 0]

    def _walk_call(self, graph: Any, inputs: Sequence[_Known]) -> list[_Known]:
        known = {each.ref(): value for each, value in zip(graph.inputs, inputs, strict=True)}
        self._walk(graph, known)
        return [known.get(output.ref(), MIXED) for output in graph.outputs]

    def _walk_branches(self, operation: Any, inputs: list[_Known]) -> list[_Known]:
        """Walk through all branches of a conditional, and merge their results."""
        old_states, results = list(self._now), list[tuple[list[_Known], list[Origin]]]()
        for attribute in BRANCH_OPERATIONS[operation.type]:
            named = operation.get_attr(attribute)
            for function in named if isinstance(named, (list, tuple)) else [named]:
                self._now = list(old_states)
                graph = get_function_graph(operation, function)
                with self._run_only_if(inputs[0]):
                    results.append((self._walk_call(graph, inputs[1:]), self._now))
        outputs, states = results[0]
        for other_outputs, other_states in results[1:]:
            outputs = [_merge_known(a, b) for a, b in zip(outputs, other_outputs, strict=True)]
            states = [either(a, b) for a, b in zip(states, other_states, strict=True)]
        if inputs[0] != INDEPENDENT:
            outputs, states = [MIXED] * len(outputs), _mix_changed(states, old_states)
        self._now = states
        return outputs

    def _walk_loop(self, operation: Any, inputs: list[_Known]) -> list[_Known]:
        """Walk through a loop's body repeatedly, until the results no longer change."""
        condition, body = (
            get_function_graph(operation, operation.get_attr(name)) for name in ("cond", "body")
        )
        begin, values = list(self._now), list(inputs)
        while True:
            before = (list(values), list(self._now))
            (goes_on,) = self._walk_call(condition, values)
            outputs = self._walk_call(body, values)
            values = [_merge_known(a, b) for a, b in zip(values, outputs, strict=True)]
            self._now = [either(a, b) for a, b in zip(before[1], self._now, strict=True)]
            if (values, self._now) == before:
                break
        if goes_on != INDEPENDENT:
            with self._run_only_if(goes_on):
                self._walk_call(body, values)
            self._now = _mix_changed(self._now, begin)
            values = [v if isinstance(v, _Handle) else MIXED for v in values]
        return values

    @contextlib.contextmanager
    def _run_only_if(self, decides: _Known) -> Iterator[None]:
        """Mark operations in the context as run only if a tensor decides so."""
        before = self._is_chosen
        self._is_chosen = before or decides != INDEPENDENT
        try:
            yield
        finally:
            self._is_chosen = before


def _order_operations(graph: Any) -> Iterator[Any]:
    """Yield the operations of a graph as they were traced, but each after those of its inputs.

    The gradient of a loop adds inputs to the loop, which are made later than the loop itself.
    """
    begun, done = set[Any](), set[Any]()
    for operation in graph.get_operations():
        stack = [operation]
        while stack:
            first = [
                each.op for each in stack[-1].inputs if each.op not in begun and each.graph is graph
            ]
            begun.add(stack[-1])
            stack += first
            if not first and (last := stack.pop()) not in done:
                done.add(last)
                yield last


def _to_origin(known: _Known) -> Origin:
    if isinstance(known, _Resource):
        return INDEPENDENT
    return known if isinstance(known, Origin) else MIXED


def _merge_known(one: _Known, other: _Known) -> _Known:
    return one if one == other else either(_to_origin(one), _to_origin(other))


def _mix_changed(now: Sequence[Origin], before: Sequence[Origin]) -> list[Origin]:
    """Return the states; those that differ from before become mixed."""
    return [a if a == b else MIXED for a, b in zip(now, before, strict=True)]
