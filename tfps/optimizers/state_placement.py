"""Moves the state of an optimizer to the servers: slots, iterations, learning rates."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras

from tfps.bridge.variables.server_variable import ServerVariable
from tfps.bridge.variables.shards import cut, rule_of, shards_of
from tfps.optimizers.slabs import SlabStorage
from tfps.optimizers.wrapped import devices_of, slot_lists


class StatePlacement:
    """The placement of optimizers' state on the servers of their variables.

    The slots of a variable are on the variable's server. The optimizer's scalars (iterations,
    learning rate, Nadam's product, a loss scale) are on one server, with a mirror on every other
    server that has one of its variables; all of them see the same updates.

    Args:
        storage: creates variables on servers.
    """

    def __init__(self, storage: SlabStorage) -> None:
        self._storage = storage

    def place(self, member: Any) -> None:
        """Move the state of a built optimizer, but not of those that it wraps.

        Args:
            member: the Keras optimizer; one without variables stays as it is.
        """
        variables = member._trainable_variables
        if not variables:
            return
        devices = tuple(devices_of(member))
        for value in list(member.__dict__.values()):
            if isinstance(value, keras.Variable) and value.shape == ():
                self._move(value, devices[0])
                self._storage.mirror(value._value, devices)
        for _, slots in slot_lists(member):
            for slot, variable in zip(slots, variables, strict=True):
                if slot is not None:
                    self._move_beside(slot, variable)

    def _move_beside(self, slot: Any, variable: Any) -> None:
        """Shard a slot like its variable, with each shard on the same server."""
        devices = [shard._value.device for shard in shards_of(variable)]
        if len(devices) == 1:
            self._move(slot, devices[0])
            return
        if [shard._value.device for shard in shards_of(slot)] == devices:
            return
        rule = rule_of(variable)
        self._replace(
            slot,
            lambda value, **options: self._storage.create_sharded(
                cut(value, rule), rule=rule, device_of=devices.__getitem__, **options
            ),
        )

    def _move(self, variable: Any, device: str) -> None:
        old = variable._value
        if not isinstance(old, ServerVariable) or old.device != device:
            replaced = old if isinstance(old, ServerVariable) else None
            create = functools.partial(
                self._storage.create_variable, device=device, replaces=replaced
            )
            self._replace(variable, create)

    def _replace(self, variable: Any, create: Callable[..., ServerVariable]) -> None:
        old = variable._value
        value = old.numpy()
        if isinstance(old, ServerVariable):
            self._storage.free(old)  # first: it may have a mirror on the new one's server
        variable._value = create(
            value,
            dtype=variable._dtype,
            trainable=False,
            name=variable.name,
            path=variable.path,
        )
