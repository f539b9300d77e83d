"""Groups a model's weights into slabs: vectors of variables that optimizers update together."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from tfps.bridge.variables.server_variable import ServerVariable
from tfps.bridge.variables.sharded_variable import ShardedVariable
from tfps.bridge.variables.shards import get_shards
from tfps.bridge.variables.view_variable import SlabVariable, ViewVariable
from tfps.optimizers.elementwise import may_share_slabs
from tfps.optimizers.optimizer_call import OptimizerCall
from tfps.optimizers.wrapped import get_leaf_optimizers, is_decayed
from tfps.partitioners.row_rule import RowRule
from tfps.partitioners.variable_spec import ITEM_BYTES
from tfps.placement.slab import Candidate, SlabLayout, lay_out


class SlabStorage(Protocol):
    """Creates and frees variables on servers."""

    def create_variable(self, initial_value: Any, *, device: str, **options: Any) -> ServerVariable:
        """Create a separate named variable."""

    def create_bookkeeping(
        self, initial_value: Any, *, device: str, name: str, **options: Any
    ) -> ServerVariable:
        """Create a variable for tfps itself, which is in no plan and in no checkpoint."""

    def create_sharded(
        self,
        shards: Sequence[Any],
        *,
        rule: RowRule,
        device_of: Callable[[int], str],
        path: str,
        **options: Any,
    ) -> ShardedVariable:
        """Create a variable from its shards, each a variable on a server of its own, in no slab."""

    def create_slab(
        self, variables: Sequence[ServerVariable], *, layout: SlabLayout, name: str, fill_gaps: bool
    ) -> tuple[SlabVariable, list[ViewVariable]]:
        """Create a vector that stores variables, and the views that replace them."""

    def mirror(self, variable: ServerVariable, devices: tuple[str, ...]) -> None:
        """Create copies of a variable on other servers."""

    def free(self, variable: ServerVariable) -> None:
        """Free the memory of a variable on its server before the variable is deleted."""


def can_share_slab(variable: Any) -> bool:
    """Return whether a variable may be part of a slab, for any optimizer."""
    return (
        isinstance(variable._value, ServerVariable)
        and variable._value.dtype.is_floating
        and variable._value.dtype.name in ITEM_BYTES
        and not (variable._value.excluded_from_slabs and variable._value.slab is None)
        and variable.constraint is None
        and not variable.overwrite_with_gradient
    )


def get_updated_shards(variable: Any) -> tuple[Any, ...]:
    """Copy the variable's Keras properties to its shards, and return the shards."""
    shards = get_shards(variable)
    for shard in shards:
        if shard is not variable:
            shard.constraint = variable.constraint
            shard.overwrite_with_gradient = variable.overwrite_with_gradient
    return shards


def plan_slabs(
    calls: Sequence[OptimizerCall], *, servers: Sequence[str]
) -> list[tuple[SlabLayout, list[Any]]]:
    """Return the slabs that a program's optimizer calls need and that do not exist yet.

    Variables share a slab if every call of the program trains all or none of them, all with or all
    without weight decay. Slabs are divided, but never joined: programs that alternately train
    different parts of a model arrive at their common parts, and none undoes another's slabs.

    Args:
        calls: the calls of a program, in their order.
        servers: the device of each parameter server.

    Returns:
        Each new slab's layout, and its Keras variables in that order; for a sharded variable the
        Keras variables of its shards.
    """
    trainers: dict[int, list[Hashable]] = {}
    shards: dict[int, Any] = {}
    for number, call in enumerate(calls):
        for position, leaf in enumerate(get_leaf_optimizers(call.optimizer)):
            if not may_share_slabs(call.optimizer, leaf):
                continue
            trained = {id(variable) for variable in leaf._trainable_variables}
            for variable in call.variables:
                if id(variable) not in trained:
                    continue
                decays = leaf.weight_decay is not None and is_decayed(leaf, variable)
                for shard in filter(can_share_slab, get_updated_shards(variable)):
                    shards[id(shard)] = shard
                    trainers.setdefault(id(shard), []).append((number, position, decays))
    for variable in list(shards.values()):
        for neighbour in _find_slab_owners(variable):
            shards.setdefault(id(neighbour), neighbour)
    by_name = {variable._value.shared_name: variable for variable in shards.values()}
    candidates = [
        Candidate(
            name=name,
            server=servers.index(variable._value.device),
            dtype=variable._value.dtype.name,
            shape=tuple(variable.shape),
            group=(get_slab_name(variable), tuple(trainers.get(id(variable), ()))),
        )
        for name, variable in by_name.items()
    ]
    return [
        (layout, [by_name[name] for name in layout.names])
        for layout in lay_out(candidates)
        if not _slab_exists(layout, by_name)
    ]


def create_slab(layout: SlabLayout, variables: Sequence[Any], *, storage: SlabStorage) -> None:
    """Create a slab, and make Keras variables views of its segments; they stay the same objects.

    Args:
        layout: the layout of the slab.
        variables: Keras variables, in the order of the layout.
        storage: creates the slab on the server.
    """
    natives = [variable._value for variable in variables]
    slab, views = storage.create_slab(natives, layout=layout, name=layout.digest, fill_gaps=False)
    slab.owners = tuple(weakref.ref(variable) for variable in variables)
    for variable, view in zip(variables, views, strict=True):
        variable._value = view


def get_slab_name(variable: Any) -> str | None:
    """Return the name of the slab that holds a Keras variable, or None."""
    slab = variable._value.slab
    return None if slab is None else slab.shared_name


def _find_slab_owners(variable: Any) -> list[Any]:
    """Return all Keras variables that share the slab of a variable."""
    slab = variable._value.slab
    if slab is None:
        return []
    owners = [owner() for owner in slab.owners]
    return [owner for owner in owners if owner is not None and owner._value.slab is slab]


def _slab_exists(layout: SlabLayout, by_name: dict[str, Any]) -> bool:
    slab = by_name[layout.names[0]]._value.slab
    return slab is not None and set(slab.layout.names) == set(layout.names)
