"""Lists what an optimizer updates on a server: variables or whole slabs, and their slots."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.variables.sharded_variable import wrap_native_variable
from tfps.bridge.variables.shards import get_shards
from tfps.bridge.variables.view_variable import SlabVariable, get_segment
from tfps.optimizers.elementwise import may_share_slabs
from tfps.optimizers.slabs import SlabStorage, can_share_slab, get_slab_name, get_updated_shards
from tfps.optimizers.wrapped import is_decayed, iter_slots


class UpdateTarget(NamedTuple):
    """A Keras variable that an optimizer updates: a variable of the model, a shard, or a slab.

    Args:
        variable: the Keras variable.
        slots: attribute -> slot of the variable, None if it has none.
        decays: whether weight decay acts on the variable.
        is_slab: whether the variable stands for several of the model's variables.
    """

    variable: Any
    slots: Mapping[str, Any]
    decays: bool
    is_slab: bool

    @property
    def name(self) -> str:
        return str(self.variable._value.shared_name)


class UpdateTargets:
    """The update targets of one inner optimizer, whose slots have the layout of its variables.

    Args:
        optimizer: the optimizer that the step calls, including wrappers.
        leaf: this optimizer, or one that it wraps; built, with its state on the servers.
        storage: creates slabs for its slots.
    """

    def __init__(self, optimizer: Any, leaf: Any, *, storage: SlabStorage) -> None:
        self._leaf = leaf
        owners = leaf._trainable_variables
        self._shards = [shard for owner in owners for shard in get_updated_shards(owner)]
        self._owners = [owner for owner in owners for _ in get_shards(owner)]
        self._natives = [weakref.ref(shard._value) for shard in self._shards]
        self._slots = {name: _split_slots(slots, owners) for name, slots in iter_slots(leaf)}
        self._positions = {shard._value.shared_name: i for i, shard in enumerate(self._shards)}
        self._slabs: dict[str, UpdateTarget] = {}
        if may_share_slabs(optimizer, leaf):
            slabs = {v._value.slab.shared_name: v._value.slab for v in self._find_views()}
            for name, slab in slabs.items():
                if self._can_update_whole(slab):
                    self._slabs[name] = self._create_slab_target(slab, storage)

    @property
    def is_current(self) -> bool:
        """Whether all variables are still stored where they were."""
        shards = self._shards
        return all(p._value is native() for p, native in zip(shards, self._natives, strict=True))

    def get_all(self) -> list[UpdateTarget]:
        """Return all update targets: slabs that are updated as a whole, and all other shards."""
        targets = [
            self._slabs.get(get_slab_name(p) or "") or self._get_shard_target(p)
            for p in self._shards
        ]
        return list({target.name: target for target in targets}.values())

    def get_targets_on(self, device: str, gradients: Mapping[str, tf.Tensor]) -> list[UpdateTarget]:
        """Return the update targets of a server for a call with gradients for some of them.

        Args:
            device: the server.
            gradients: name of a variable, or of a slab if all of its variables have gradients ->
                gradient.
        """
        targets: dict[str, UpdateTarget] = {}
        for shard in self._shards:
            if shard._value.device != device:
                continue
            target = self._get_shard_target(shard)
            slab = shard._value.slab
            if slab is not None:
                whole = self._slabs.get(slab.shared_name)
                parts = any(name in gradients for name in slab.layout.names)
                if whole is not None and not parts:
                    target = whole
            targets[target.name] = target
        return list(targets.values())

    def split_slab_gradients(self, gradients: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Return gradients by target name; split gradients of slabs that are not targets."""
        known = dict(gradients)
        for variable in self._find_views():
            native = variable._value
            slab, member = native.slab, native.member
            if slab.shared_name in gradients and slab.shared_name not in self._slabs:
                segment = get_segment(gradients[slab.shared_name], member)
                known[native.shared_name] = tf.reshape(segment, member.shape)
        return known

    def _find_views(self) -> list[Any]:
        return [shard for shard in self._shards if shard._value.slab is not None]

    def _get_shard_target(self, shard: Any) -> UpdateTarget:
        position = self._positions[shard._value.shared_name]
        slots = {name: values[position] for name, values in self._slots.items()}
        return UpdateTarget(shard, slots, self._is_decayed(position), is_slab=False)

    def _is_decayed(self, position: int) -> bool:
        owner = self._owners[position]
        return self._leaf.weight_decay is not None and is_decayed(self._leaf, owner)

    def _can_update_whole(self, slab: SlabVariable) -> bool:
        """Return whether the optimizer can update a slab as a whole, with slots of equal shapes."""
        if not all(name in self._positions for name in slab.layout.names):
            return False
        members = [self._positions[name] for name in slab.layout.names]
        variables = [self._shards[i] for i in members]
        return (
            all(can_share_slab(variable) for variable in variables)
            and len({self._is_decayed(i) for i in members}) == 1
            and all(
                slots[i] is not None
                and tuple(slots[i].shape) == tuple(variable.shape)
                and slots[i]._value.dtype == slab.dtype
                for slots in self._slots.values()
                for i, variable in zip(members, variables, strict=True)
            )
        )

    def _create_slab_target(self, slab: SlabVariable, storage: SlabStorage) -> UpdateTarget:
        members = [self._positions[name] for name in slab.layout.names]
        slots = {
            name: _wrap_slab(
                _get_slot_slab(
                    [values[i] for i in members],
                    slab,
                    name=f"{self._leaf.name}/{name.strip('_')}",
                    storage=storage,
                )
            )
            for name, values in self._slots.items()
        }
        first = self._get_shard_target(self._shards[members[0]])
        return UpdateTarget(_wrap_slab(slab), slots, first.decays, is_slab=True)


def _split_slots(slots: Sequence[Any], owners: Sequence[Any]) -> list[Any]:
    """Return one slot for each shard; None if the optimizer has no slot for the variable."""
    return [
        shard
        for slot, owner in zip(slots, owners, strict=True)
        for shard in (get_shards(slot) if slot is not None else [None] * len(get_shards(owner)))
    ]


def _wrap_slab(slab: SlabVariable) -> Any:
    """Return a Keras variable whose value is the whole vector, for an optimizer to update."""
    return wrap_native_variable(slab, path=slab.shared_name)


def _get_slot_slab(
    slots: list[Any], slab: SlabVariable, *, name: str, storage: SlabStorage
) -> SlabVariable:
    """Return the slab that holds the slots of a slab's variables; create it if necessary."""
    natives = [slot._value for slot in slots]
    layout = slab.layout.renamed([native.shared_name for native in natives])
    existing: SlabVariable | None = natives[0].slab
    if existing is not None and existing.layout == layout:
        return existing
    created, views = storage.create_slab(
        natives, layout=layout, name=f"{slab.layout.digest}/{name}", fill_gaps=True
    )
    for slot, view in zip(slots, views, strict=True):
        slot._value = view
    return created
