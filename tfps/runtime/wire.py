"""What a program's messages carry to and from each server, as layouts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tfps.runtime.program import Program
from tfps.transport.layout import Layout

METRICS, OUTPUTS = "metrics", "outputs"


class Parts(NamedTuple):
    """Variables of one server, as a worker and as the server see them in a message.

    A slab whose variables all travel is one segment to the server, and the variables' segments to
    the worker lie end to end in its place: the bytes are the same.
    """

    variables: tuple[Any, ...]  # of Keras, in the order of the worker's segments
    natives: tuple[Any, ...]  # what the server reads and writes: slabs, and variables outside them

    @property
    def layout(self) -> Layout:
        """Of the values, on the worker."""
        return Layout.of(self.entries(gradients=False, of_server=False))

    @property
    def server_layout(self) -> Layout:
        """Of the values, on the server."""
        return Layout.of(self.entries(gradients=False, of_server=True))

    def entries(
        self, *, gradients: bool, of_server: bool
    ) -> list[tuple[str, str, tuple[int, ...]]]:
        """What to lay out: names, dtypes and shapes."""
        natives = self.natives if of_server else [v._value for v in self.variables]
        return [
            (
                gradient_of(native) if gradients else native.shared_name,
                native.dtype.name,
                tuple(native.shape),
            )
            for native in natives
        ]


def parts_of(variables: Iterable[Any]) -> Parts:
    """Put the variables of a slab next to each other, if all of them are there."""
    by_name = {name_of(variable): variable for variable in variables}
    ordered: dict[str, Any] = {}
    natives = []
    for name, variable in by_name.items():
        if name in ordered:
            continue
        slab = variable._value.slab
        if slab is not None and all(member in by_name for member in slab.layout.names):
            ordered.update((member, by_name[member]) for member in slab.layout.names)
            natives.append(slab)
        else:
            ordered[name] = variable
            natives.append(variable._value)
    return Parts(tuple(ordered.values()), tuple(natives))


@dataclass(frozen=True)
class StageWire:
    """The messages of one stage with one server."""

    gradients: Parts  # what gradients go up for
    state: tuple[Any, ...]  # Keras variables whose new values go up
    counts: tuple[Any, ...]  # of updates, whose increases go up
    values: Parts  # what comes down
    request: Layout
    reply: Layout
    server_request: Layout  # the same bytes as the server sees them
    server_reply: Layout

    @property
    def parameters(self) -> tuple[Any, ...]:
        """The Keras variables whose values come down."""
        return self.values.variables


def name_of(variable: Any) -> str:
    """A variable's name in a payload."""
    return str(variable._value.shared_name)


def gradient_name(variable: Any) -> str:
    """The name of a variable's gradient in a payload."""
    return gradient_of(variable._value)


def gradient_of(native: Any) -> str:
    """The name of the gradient of a server's variable or slab in a payload."""
    return f"gradient of {native.shared_name}"


def count_name(variable: Any) -> str:
    """The name of a count's increase in a payload."""
    return f"increase of {variable._value.shared_name}"


def parameters_on(program: Program, device: str) -> tuple[Any, ...]:
    """A program's variables on one server, in the order of their first use."""
    return tuple(v for v in program.variables if v._value.device == device)


def parameter_layout(variables: Iterable[Any]) -> Layout:
    """Values of variables."""
    return Layout.of((name_of(v), v._value.dtype.name, tuple(v.shape)) for v in variables)


def report_layout(program: Program) -> Layout:
    """The metric state and the outputs of one step, which close its ticket."""
    return Layout.of(
        [
            (METRICS, "float64", (program.metric_items,)),
            (OUTPUTS, "float64", (program.output_items,)),
        ]
    )


def stage_wire(program: Program, stage: int, *, device: str, reports: bool) -> StageWire:
    """The messages of a stage.

    Args:
        program: the step.
        stage: its number.
        device: the server.
        reports: the server takes the report of the step before (the ticket server does).
    """
    is_last = stage == len(program.stages) - 1
    gradients = parts_of(v for v in program.stages[stage].variables if v._value.device == device)
    # A learning rate that the step assigns has a mirror on every server of its optimizer.
    state = tuple(v for v in program.state if device in v._value.resource.devices)
    state = state if is_last else ()
    local = program.local
    counts = local.counts if local is not None and local.adds_counts else ()
    counts = tuple(v for v in counts if device in v._value.resource.devices)
    values = parts_of(parameters_on(program, device)) if is_last else gradients
    rest: list[tuple[str, str, tuple[int, ...]]] = [
        (name_of(v), v._value.dtype.name, tuple(v.shape)) for v in state
    ]
    rest += [(count_name(v), "float64", ()) for v in counts]
    if is_last and reports:
        rest += [
            (METRICS, "float64", (program.metric_items,)),
            (OUTPUTS, "float64", (program.output_items,)),
        ]
    return StageWire(
        gradients=gradients,
        state=state,
        counts=counts,
        values=values,
        request=Layout.of([*gradients.entries(gradients=True, of_server=False), *rest]),
        reply=values.layout,
        server_request=Layout.of([*gradients.entries(gradients=True, of_server=True), *rest]),
        server_reply=values.server_layout,
    )
