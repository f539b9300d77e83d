"""What a program's messages carry to and from each server, as layouts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tfps.runtime.program import Program
from tfps.transport.layout import Layout

METRICS, OUTPUTS = "metrics", "outputs"


@dataclass(frozen=True)
class StageWire:
    """The messages of one stage with one server."""

    gradients: tuple[Any, ...]  # Keras variables whose gradients go up
    state: tuple[Any, ...]  # Keras variables whose new values go up
    parameters: tuple[Any, ...]  # Keras variables whose values come down
    request: Layout
    reply: Layout


def name_of(variable: Any) -> str:
    """A variable's name in a payload."""
    return str(variable._value.shared_name)


def gradient_name(variable: Any) -> str:
    """The name of a variable's gradient in a payload."""
    return f"gradient of {name_of(variable)}"


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
    gradients = tuple(v for v in program.stages[stage].variables if v._value.device == device)
    state = tuple(v for v in program.state if v._value.device == device) if is_last else ()
    parameters = parameters_on(program, device) if is_last else gradients
    entries = [(gradient_name(v), v._value.dtype.name, tuple(v.shape)) for v in gradients]
    entries += [(name_of(v), v._value.dtype.name, tuple(v.shape)) for v in state]
    if is_last and reports:
        entries += [
            (METRICS, "float64", (program.metric_items,)),
            (OUTPUTS, "float64", (program.output_items,)),
        ]
    return StageWire(gradients, state, parameters, Layout.of(entries), parameter_layout(parameters))
