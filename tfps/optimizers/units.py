"""What an optimizer updates on a server: single variables, or whole slabs with their slots."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.view_variable import SlabVariable, piece_of
from tfps.optimizers.elementwise import may_share_slabs
from tfps.optimizers.slabs import Storage, can_share
from tfps.optimizers.wrapped import is_decayed, slot_lists, wrappers_over


class Unit(NamedTuple):
    """A Keras variable to an optimizer: one of the model's, or one whose value is a slab.

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


def slot_of_wrapper(unit: Unit, number: int) -> dict[str, Any]:
    """The state that a wrapper has for a unit, by attribute; wrappers count from the outside."""
    prefix = _prefix(number)
    return {
        name.removeprefix(prefix): slot
        for name, slot in unit.slots.items()
        if name.startswith(prefix)
    }


def _prefix(number: int) -> str:
    return f"wrapper_{number}."


class Units:
    """The units of one optimizer without wrapper; its slots are laid out like its variables.

    Args:
        optimizer: what the step calls, so a wrapper where there is one.
        leaf: it, or one of those that it wraps; built, its state on the servers.
        storage: makes slabs for its slots.
    """

    def __init__(self, optimizer: Any, leaf: Any, *, storage: Storage) -> None:
        self._leaf = leaf
        self._natives = [weakref.ref(v._value) for v in leaf._trainable_variables]
        self._slots = dict(slot_lists(leaf))
        for number, wrapper in enumerate(wrappers_over(optimizer, leaf)):
            names = [v._value.shared_name for v in wrapper._trainable_variables]
            for name, values in slot_lists(wrapper):
                by_name = dict(zip(names, values, strict=True))
                self._slots[_prefix(number) + name] = [
                    by_name[v._value.shared_name] for v in leaf._trainable_variables
                ]
        self._positions = {v._value.shared_name: i for i, v in enumerate(leaf._trainable_variables)}
        self._slabs: dict[str, Unit] = {}
        if may_share_slabs(optimizer, leaf):
            slabs = {v._value.slab.shared_name: v._value.slab for v in self._views()}
            for name, slab in slabs.items():
                if self._holds(slab):
                    self._slabs[name] = self._unit_of(slab, storage)

    @property
    def are_current(self) -> bool:
        """Whether all variables still lie where they lay."""
        variables = self._leaf._trainable_variables
        return all(v._value is native() for v, native in zip(variables, self._natives, strict=True))

    def all(self) -> list[Unit]:
        """Every variable once, those of a slab that the optimizer sees whole together."""
        units = [self._slabs.get(_slab_name(v) or "") or self._single(v) for v in self._variables()]
        return list({unit.name: unit for unit in units}.values())

    def on(self, device: str, gradients: Mapping[str, tf.Tensor]) -> list[Unit]:
        """The units of a server for a call that brings gradients for some of them.

        Args:
            device: the server.
            gradients: by the name of a variable, or of a slab if all of its variables have one.
        """
        units: dict[str, Unit] = {}
        for variable in self._leaf._trainable_variables:
            if variable._value.device != device:
                continue
            unit = self._single(variable)
            slab = variable._value.slab
            if slab is not None:
                whole = self._slabs.get(slab.shared_name)
                parts = any(name in gradients for name in slab.layout.names)
                if whole is not None and not parts:
                    unit = whole
            units[unit.name] = unit
        return list(units.values())

    def understood(self, gradients: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Gradients of the units: a slab's is cut up where the optimizer does not see it whole."""
        known = dict(gradients)
        for variable in self._views():
            native = variable._value
            slab, member = native.slab, native.member
            if slab.shared_name in gradients and slab.shared_name not in self._slabs:
                piece = piece_of(gradients[slab.shared_name], member)
                known[native.shared_name] = tf.reshape(piece, member.shape)
        return known

    def _views(self) -> list[Any]:
        return [v for v in self._variables() if v._value.slab is not None]

    def _variables(self) -> list[Any]:
        variables: list[Any] = self._leaf._trainable_variables
        return variables

    def _single(self, variable: Any) -> Unit:
        position = self._positions[variable._value.shared_name]
        slots = {name: values[position] for name, values in self._slots.items()}
        return Unit(variable, slots, self._decays(variable), is_slab=False)

    def _decays(self, variable: Any) -> bool:
        return self._leaf.weight_decay is not None and is_decayed(self._leaf, variable)

    def _holds(self, slab: SlabVariable) -> bool:
        """Whether the optimizer does the same to all of a slab, with slots of the same shapes."""
        if not all(name in self._positions for name in slab.layout.names):
            return False
        members = [self._positions[name] for name in slab.layout.names]
        variables = [self._leaf._trainable_variables[i] for i in members]
        return (
            all(can_share(variable) for variable in variables)
            and len({self._decays(variable) for variable in variables}) == 1
            and all(
                slots[i] is not None
                and tuple(slots[i].shape) == tuple(variable.shape)
                and slots[i]._value.dtype == slab.dtype
                for slots in self._slots.values()
                for i, variable in zip(members, variables, strict=True)
            )
        )

    def _unit_of(self, slab: SlabVariable, storage: Storage) -> Unit:
        members = [self._positions[name] for name in slab.layout.names]
        slots = {
            name: _slab_of([values[i] for i in members], slab, name, storage).as_keras_variable()
            for name, values in self._slots.items()
        }
        first = self._single(self._leaf._trainable_variables[members[0]])
        return Unit(slab.as_keras_variable(), slots, first.decays, is_slab=True)


def _slab_name(variable: Any) -> str | None:
    slab = variable._value.slab
    return None if slab is None else slab.shared_name


def _slab_of(slots: list[Any], slab: SlabVariable, name: str, storage: Storage) -> SlabVariable:
    """The slab of one kind of slot, made if it is not there yet."""
    natives = [slot._value for slot in slots]
    layout = slab.layout.renamed([native.shared_name for native in natives])
    existing: SlabVariable | None = natives[0].slab
    if existing is not None and existing.layout == layout:
        return existing
    made, views = storage.create_slab(
        natives, layout=layout, name=f"{slab.shared_name}_{name.strip('_')}", filled=True
    )
    for slot, view in zip(slots, views, strict=True):
        slot._value = view
    return made
