"""What a job holds on one server, in the order in which it was made, as a value."""

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
    """How a variable is made."""

    shape: tf.TensorShape  # of its value
    dtype: tf.DType  # of it
    # An array, or a callable that returns it on the server; None: zeros, until the value that
    # a checkpoint has is restored.
    initial_value: Any = None


class ServedPlan(NamedTuple):
    """A service as it was installed."""

    service: Service  # describes the functions
    functions: tuple[Any, ...]  # server functions, in the order of the service's entries
    hot: tuple[int, ...] = (
        0,
    )  # the positions of those that steps call, the first more than others


class ServerContents:
    """The resources and services of a job on a server; nothing of the job is there beside them.

    Recovery makes them again on a server that was started anew, an observer opens them, and what
    ends a job frees them.

    Attributes:
        records: the resources, the oldest first; of variables how they are made, None: others are
            made by whoever opens them.
        plans: the services, by the number of their plan.
        held: of a job that goes on, the variables that are there and that nobody has opened.
        misfits: of those that were opened, which are of another shape, a sentence for each.
        is_lost: the server answers no more; what is freed is only forgotten.
        variables: made here, by name, as long as somebody refers to them; no mirrors.
    """

    def __init__(self, *, device: str, container: str) -> None:
        self.device, self.container, self.is_lost = device, container, False
        self.plans: dict[int, ServedPlan] = {}
        self.variables: weakref.WeakValueDictionary[str, ServerVariable] = (
            weakref.WeakValueDictionary()
        )
        self.records: dict[NamedResource, VariableRecord | None] = {}
        self.held: dict[str, VariableRecord] = {}
        self.misfits: list[str] = []

    def create(
        self, kind: type[V], initial_value: Any, *, in_checkpoints: bool = False, **options: Any
    ) -> V:
        """Make a variable on the server, or open it where the job goes on with it.

        When one that is ``in_checkpoints`` is made again its value is restored, so how it began is
        nobody's concern.
        """
        there = self.held.pop(options["shared_name"], None)
        if there is not None:
            options |= {"there": (there.shape, there.dtype), "on_misfit": self.misfits.append}
        variable = kind(initial_value, device=self.device, container=self.container, **options)
        self.variables[variable.shared_name] = variable
        self.add_variable(variable, initial_value=None if in_checkpoints else initial_value)
        return variable

    def add_variable(self, variable: ServerVariable, *, initial_value: Any = None) -> None:
        """Take note of a variable that was made here: with its value, or as a mirror."""
        resource = NamedResource(variable.container, variable.shared_name, self.device)
        self.records[resource] = VariableRecord(variable.shape, variable.dtype, initial_value)

    def add(self, resources: Iterable[NamedResource]) -> None:
        """Take note of what requests make here when they need it, as mutexes and queues."""
        self.records.update(dict.fromkeys(resources))

    def discard(self, resources: Iterable[NamedResource]) -> None:
        """Take note that something has been freed."""
        for resource in resources:
            self.records.pop(resource, None)

    def free(self, resources: Iterable[NamedResource]) -> None:
        """Free what is here of some resources."""
        there = [resource for resource in list(resources) if resource in self.records]
        self.discard(there)
        for resource in () if self.is_lost else there:
            # With a server that is lost at this moment goes what it held.
            with contextlib.suppress(tf.errors.UnavailableError):
                resource.destroy()

    def replay(self) -> None:
        """Make all resources again, on a server that has none; values are restored by others."""
        for resource, record in list(self.records.items()):  # a save that ends changes them
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
            variable.reopen()
