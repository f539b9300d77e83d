"""Moves the state of an optimizer to the servers: slots, iterations, learning rates."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras

from tfps.bridge.variables.server_variable import ServerVariable
from tfps.bridge.variables.shards import get_row_rule, get_shards, split_by_rule
from tfps.optimizers.slabs import SlabStorage
from tfps.optimizers.wrapped import get_devices, iter_slots


class StatePlacement:
    """Moves the state of optimizers to the servers of their variables.

    The slots of a variable are on the variable's server. The optimizer's scalars (iterations,
    learning rate, Nadam's product, a loss scale) are on one server, with a mirror on every other
    server that has one of its variables; all of them see the same updates.

    Args:
        storage: creates variables on servers.
    """

    def __init__(self, storage: SlabStorage) -> None:
        self._storage = storage

    def place(self, member: Any) -> None:
        """Move the state of a built optimizer, without the state of optimizers inside it.

        Args:
            member: the Keras optimizer; one without variables stays as it is.
        """
        variables = member._trainable_variables
        if not variables:
            return
        devices = tuple(get_devices(member))
        for value in list(member.__dict__.values()):
            if isinstance(value, keras.Variable) and value.shape == ():
                self._move(value, devices[0])
                self._storage.mirror(value._value, devices)
        for _, slots in iter_slots(member):
            for slot, variable in zip(slots, variables, strict=True):
                if slot is not None:
                    self._shard_like_variable(slot, variable)

    def _shard_like_variable(self, slot: Any, variable: Any) -> None:
        """Shard a slot like its variable, with each shard on the same server."""
        devices = [shard._value.device for shard in get_shards(variable)]
        if len(devices) == 1:
            self._move(slot, devices[0])
            return
        if [shard._value.device for shard in get_shards(slot)] == devices:
            return
        rule = get_row_rule(variable)
        self._replace_variable(
            slot,
            lambda value, **options: self._storage.create_sharded(
                split_by_rule(value, rule), rule=rule, device_of=devices.__getitem__, **options
            ),
        )

    def _move(self, variable: Any, device: str) -> None:
        old = variable._value
        if not isinstance(old, ServerVariable) or old.device != device:
            replaced = old if isinstance(old, ServerVariable) else None
            create = functools.partial(
                self._storage.create_variable, device=device, replaces=replaced
            )
            self._replace_variable(variable, create)

    def _replace_variable(self, variable: Any, create: Callable[..., ServerVariable]) -> None:
        old = variable._value
        value = old.numpy()
        if isinstance(old, ServerVariable):
            self._storage.free(old)  # first: it may have a mirror on the new one's server
        variable._value = create(
            value, dtype=variable._dtype, trainable=False, name=variable.name, path=variable.path
        )
