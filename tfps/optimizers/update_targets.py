"""What an optimizer updates on a server: single variables, or whole slabs with their slots."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.variables.sharded_variable import keras_variable_over
from tfps.bridge.variables.shards import shards_of
from tfps.bridge.variables.view_variable import SlabVariable, segment_of
from tfps.optimizers.elementwise import may_share_slabs
from tfps.optimizers.slabs import SlabStorage, can_share, owned_shards, slab_name
from tfps.optimizers.wrapped import is_decayed, slot_lists, wrappers_over


class UpdateTarget(NamedTuple):
    """A Keras variable to an optimizer: one of the model's, its shard, or one over a slab.

    Args:
        variable: what the optimizer updates.
        slots: its state for it, by attribute; None where it has none. That of a wrapper is there
            too (see `slot_of_wrapper`).
        decays: whether weight decay acts on it.
        is_slab: whether it stands for several of the model's variables.
    """

    variable: Any
    slots: Mapping[str, Any]
    decays: bool
    is_slab: bool

    @property
    def name(self) -> str:
        return str(self.variable._value.shared_name)


def slot_of_wrapper(target: UpdateTarget, number: int) -> dict[str, Any]:
    """The state that a wrapper has for a target, by attribute; wrappers count from the outside."""
    prefix = _prefix(number)
    return {
        name.removeprefix(prefix): slot
        for name, slot in target.slots.items()
        if name.startswith(prefix)
    }


def _prefix(number: int) -> str:
    return f"wrapper_{number}."


class UpdateTargets:
    """What one optimizer without wrapper updates; its slots are laid out like its variables.

    Args:
        optimizer: what the step calls, so a wrapper where there is one.
        leaf: it, or one of those that it wraps; built, its state on the servers.
        storage: makes slabs for its slots.
    """

    def __init__(self, optimizer: Any, leaf: Any, *, storage: SlabStorage) -> None:
        self._leaf = leaf
        owners = leaf._trainable_variables
        self._shards = [shard for owner in owners for shard in owned_shards(owner)]
        self._owners = [owner for owner in owners for _ in shards_of(owner)]
        self._natives = [weakref.ref(shard._value) for shard in self._shards]
        self._slots = {name: _in_shards(slots, owners) for name, slots in slot_lists(leaf)}
        for number, wrapper in enumerate(wrappers_over(optimizer, leaf)):
            names = [v._value.shared_name for v in wrapper._trainable_variables]
            for name, values in slot_lists(wrapper):
                by_name = dict(zip(names, values, strict=True))
                slots = [by_name[owner._value.shared_name] for owner in owners]
                self._slots[_prefix(number) + name] = _in_shards(slots, owners)
        self._positions = {shard._value.shared_name: i for i, shard in enumerate(self._shards)}
        self._slabs: dict[str, UpdateTarget] = {}
        if may_share_slabs(optimizer, leaf):
            slabs = {v._value.slab.shared_name: v._value.slab for v in self._views()}
            for name, slab in slabs.items():
                if self._holds(slab):
                    self._slabs[name] = self._unit_of(slab, storage)

    @property
    def are_current(self) -> bool:
        """Whether all variables still lie where they lay."""
        shards = self._shards
        return all(p._value is native() for p, native in zip(shards, self._natives, strict=True))

    def all(self) -> list[UpdateTarget]:
        """Every shard once, those of a slab that the optimizer sees whole together."""
        targets = [self._slabs.get(slab_name(p) or "") or self._single(p) for p in self._shards]
        return list({target.name: target for target in targets}.values())

    def on(self, device: str, gradients: Mapping[str, tf.Tensor]) -> list[UpdateTarget]:
        """The update targets of a server for a call that brings gradients for some of them.

        Args:
            device: the server.
            gradients: by the name of a variable, or of a slab if all of its variables have one.
        """
        targets: dict[str, UpdateTarget] = {}
        for shard in self._shards:
            if shard._value.device != device:
                continue
            target = self._single(shard)
            slab = shard._value.slab
            if slab is not None:
                whole = self._slabs.get(slab.shared_name)
                parts = any(name in gradients for name in slab.layout.names)
                if whole is not None and not parts:
                    target = whole
            targets[target.name] = target
        return list(targets.values())

    def understood(self, gradients: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Gradients of the targets: a slab's is cut up if the optimizer does not see it whole."""
        known = dict(gradients)
        for variable in self._views():
            native = variable._value
            slab, member = native.slab, native.member
            if slab.shared_name in gradients and slab.shared_name not in self._slabs:
                segment = segment_of(gradients[slab.shared_name], member)
                known[native.shared_name] = tf.reshape(segment, member.shape)
        return known

    def _views(self) -> list[Any]:
        return [shard for shard in self._shards if shard._value.slab is not None]

    def _single(self, shard: Any) -> UpdateTarget:
        position = self._positions[shard._value.shared_name]
        slots = {name: values[position] for name, values in self._slots.items()}
        return UpdateTarget(shard, slots, self._decays(position), is_slab=False)

    def _decays(self, position: int) -> bool:
        owner = self._owners[position]
        return self._leaf.weight_decay is not None and is_decayed(self._leaf, owner)

    def _holds(self, slab: SlabVariable) -> bool:
        """Whether the optimizer does the same to all of a slab, with slots of the same shapes."""
        if not all(name in self._positions for name in slab.layout.names):
            return False
        members = [self._positions[name] for name in slab.layout.names]
        variables = [self._shards[i] for i in members]
        return (
            all(can_share(variable) for variable in variables)
            and len({self._decays(i) for i in members}) == 1
            and all(
                slots[i] is not None
                and tuple(slots[i].shape) == tuple(variable.shape)
                and slots[i]._value.dtype == slab.dtype
                for slots in self._slots.values()
                for i, variable in zip(members, variables, strict=True)
            )
        )

    def _unit_of(self, slab: SlabVariable, storage: SlabStorage) -> UpdateTarget:
        members = [self._positions[name] for name in slab.layout.names]
        slots = {
            name: _over(
                _slab_of(
                    [values[i] for i in members],
                    slab,
                    name=f"{self._leaf.name}/{name.strip('_')}",
                    storage=storage,
                )
            )
            for name, values in self._slots.items()
        }
        first = self._single(self._shards[members[0]])
        return UpdateTarget(_over(slab), slots, first.decays, is_slab=True)


def _in_shards(slots: Sequence[Any], owners: Sequence[Any]) -> list[Any]:
    """The slot of each shard; None where an optimizer has none for the variable."""
    return [
        shard
        for slot, owner in zip(slots, owners, strict=True)
        for shard in (shards_of(slot) if slot is not None else [None] * len(shards_of(owner)))
    ]


def _over(slab: SlabVariable) -> Any:
    """A Keras variable whose value is the whole vector, for an optimizer to update."""
    return keras_variable_over(slab, path=slab.shared_name)


def _slab_of(
    slots: list[Any], slab: SlabVariable, *, name: str, storage: SlabStorage
) -> SlabVariable:
    """The slab of one kind of slot, made if it is not there yet."""
    natives = [slot._value for slot in slots]
    layout = slab.layout.renamed([native.shared_name for native in natives])
    existing: SlabVariable | None = natives[0].slab
    if existing is not None and existing.layout == layout:
        return existing
    made, views = storage.create_slab(
        natives, layout=layout, name=f"{slab.layout.digest}/{name}", filled=True
    )
    for slot, view in zip(slots, views, strict=True):
        slot._value = view
    return made
