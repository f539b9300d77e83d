"""Records a job's resources and services on one server, in the order of their creation."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.variables.named_resource import NamedResource
from tfps.bridge.variables.resource_holder import V
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.transport.service import Service


class VariableRecord(NamedTuple):
    """The properties with which a variable is created."""

    shape: tf.TensorShape  # the shape of its value
    dtype: tf.DType  # the type of its value
    # An array, or a callable that returns it on the server; None: zeros, until the value from a
    # checkpoint is restored.
    initial_value: Any = None


class ServedPlan(NamedTuple):
    """A service that is installed on a server, and its functions."""

    service: Service  # describes the functions
    functions: tuple[Any, ...]  # server functions, in the order of the service's entries
    hot: tuple[int, ...] = (
        0,
    )  # the positions of those that steps call, the first more than others


class ServerContents:
    """All resources and services of a job on a server.

    Recovery creates them again on a restarted server, an observer opens them, and the end of a job
    frees them.

    Attributes:
        records: the resources, the oldest first. For variables how to create them; None: a resource
            is created when it is opened.
        plans: the services, by the number of their plan.
        held: if a job continues, its existing variables that this program has not opened.
        mismatches: a sentence for each opened variable with another shape.
        is_lost: the server does not reply any more; freeing only forgets.
        variables: variables made here, by name, as long as they have references; no copies.
    """

    def __init__(self, *, device: str, container: str) -> None:
        self.device, self.container, self.is_lost = device, container, False
        self.plans: dict[int, ServedPlan] = {}
        self.variables: weakref.WeakValueDictionary[str, ServerVariable] = (
            weakref.WeakValueDictionary()
        )
        self.records: dict[NamedResource, VariableRecord | None] = {}
        self.held: dict[str, VariableRecord] = {}
        self.mismatches: list[str] = []

    def create(
        self, kind: type[V], initial_value: Any, *, in_checkpoints: bool = False, **options: Any
    ) -> V:
        """Create a variable on the server, or open the existing one of a job that continues.

        If it is ``in_checkpoints`` its value is restored when it is created again, so its initial
        value is not kept.
        """
        existing = self.held.pop(options["shared_name"], None)
        if existing is not None:
            options |= {
                "existing": (existing.shape, existing.dtype),
                "on_mismatch": self.mismatches.append,
            }
        variable = kind(initial_value, device=self.device, container=self.container, **options)
        self.variables[variable.shared_name] = variable
        self.add_variable(variable, initial_value=None if in_checkpoints else initial_value)
        return variable

    def add_variable(self, variable: ServerVariable, *, initial_value: Any = None) -> None:
        """Record a variable that was created on the server, with its initial value or as a copy."""
        resource = NamedResource(variable.container, variable.shared_name, self.device)
        self.records[resource] = VariableRecord(variable.shape, variable.dtype, initial_value)

    def add(self, resources: Iterable[NamedResource]) -> None:
        """Record resources that requests create when they need them, as mutexes and queues."""
        self.records.update(dict.fromkeys(resources))

    def discard(self, resources: Iterable[NamedResource]) -> None:
        """Remove resources that were freed from the records."""
        for resource in resources:
            self.records.pop(resource, None)

    def free(self, resources: Iterable[NamedResource]) -> None:
        """Free resources on the server, if they are recorded, and remove their records."""
        existing = [resource for resource in list(resources) if resource in self.records]
        self.discard(existing)
        for resource in () if self.is_lost else existing:
            # A server that is lost at this moment loses them as well.
            with contextlib.suppress(tf.errors.UnavailableError):
                resource.destroy()

    def recreate(self) -> None:
        """Create all resources again, on a server without any; their values are restored later."""
        for resource, record in list(self.records.items()):  # the end of a save changes them
            with tf.init_scope(), private.placed_on(self.device):
                if record is None:
                    resource.handle()
                    continue
                value = record.initial_value
                if value is None:
                    value = tf.zeros(record.shape, record.dtype)
                value = value() if callable(value) else value
                resource.write(tf.convert_to_tensor(value, record.dtype))
        for variable in list(self.variables.values()):
            variable.reopen_handle()
