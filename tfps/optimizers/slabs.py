"""Lays a model's weights into slabs: those that a program's optimizers update together."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from tfps.bridge.variables.server_variable import ServerVariable
from tfps.bridge.variables.sharded_variable import ShardedVariable
from tfps.bridge.variables.shards import shards_of
from tfps.bridge.variables.view_variable import SlabVariable, ViewVariable
from tfps.optimizers.elementwise import may_share_slabs
from tfps.optimizers.optimizer_call import OptimizerCall
from tfps.optimizers.wrapped import is_decayed, leaves
from tfps.partitioners.row_rule import RowRule
from tfps.partitioners.variable_spec import ITEM_BYTES
from tfps.placement.slab import Candidate, SlabLayout, lay_out


class SlabStorage(Protocol):
    """What makes variables on servers."""

    def create_variable(self, initial_value: Any, *, device: str, **options: Any) -> ServerVariable:
        """A named variable of its own."""

    def create_bookkeeping(
        self, initial_value: Any, *, device: str, name: str, **options: Any
    ) -> ServerVariable:
        """A variable of the transport: in no plan, and in no checkpoint."""

    def create_sharded(
        self,
        shards: Sequence[Any],
        *,
        rule: RowRule,
        device_of: Callable[[int], str],
        path: str,
        **options: Any,
    ) -> ShardedVariable:
        """A variable whose rows lie on several servers."""

    def create_slab(
        self, variables: Sequence[ServerVariable], *, layout: SlabLayout, name: str, filled: bool
    ) -> tuple[SlabVariable, list[ViewVariable]]:
        """A vector in which variables go on; the views take their places."""

    def mirror(self, variable: ServerVariable, devices: tuple[str, ...]) -> None:
        """Keep copies of a variable on other servers."""

    def free(self, variable: ServerVariable) -> None:
        """Free the value of a variable, before the variable itself is gone."""


def can_share(variable: Any) -> bool:
    """Whether nothing acts on a variable as a whole, whichever optimizer trains it."""
    return (
        isinstance(variable._value, ServerVariable)
        and variable._value.dtype.is_floating
        and variable._value.dtype.name in ITEM_BYTES
        and not (variable._value.stays_alone and variable._value.slab is None)
        and variable.constraint is None
        and not variable.overwrite_with_gradient
    )


def owned_shards(variable: Any) -> tuple[Any, ...]:
    """The shards of a variable, with what Keras has said of it since it was made."""
    shards = shards_of(variable)
    for shard in shards:
        if shard is not variable:
            shard.constraint = variable.constraint
            shard.overwrite_with_gradient = variable.overwrite_with_gradient
    return shards


def layouts_for(
    calls: Sequence[OptimizerCall], *, servers: Sequence[str]
) -> list[tuple[SlabLayout, list[Any]]]:
    """The slabs that a program's optimizer calls ask for and that do not exist yet.

    Variables share a slab if every call of the program trains all of them or none, with or without
    weight decay alike. Slabs are only ever divided: programs that train different parts of a model
    in turn settle on their common parts, and none of them undoes another's.

    Args:
        calls: of a program, in their order.
        servers: the device of each parameter server.

    Returns:
        Each new slab's layout, and its Keras variables in that order; of a variable that is divided
        those that stand for its shards.
    """
    marks: dict[int, list[Hashable]] = {}
    found: dict[int, Any] = {}
    for number, call in enumerate(calls):
        for position, leaf in enumerate(leaves(call.optimizer)):
            if not may_share_slabs(call.optimizer, leaf):
                continue
            trained = {id(variable) for variable in leaf._trainable_variables}
            for variable in call.variables:
                if id(variable) not in trained:
                    continue
                decays = leaf.weight_decay is not None and is_decayed(leaf, variable)
                for shard in filter(can_share, owned_shards(variable)):
                    found[id(shard)] = shard
                    marks.setdefault(id(shard), []).append((number, position, decays))
    for variable in list(found.values()):
        for neighbour in _sharing(variable):
            found.setdefault(id(neighbour), neighbour)
    by_name = {variable._value.shared_name: variable for variable in found.values()}
    candidates = [
        Candidate(
            name=name,
            server=servers.index(variable._value.device),
            dtype=variable._value.dtype.name,
            shape=tuple(variable.shape),
            group=(slab_name(variable), tuple(marks.get(id(variable), ()))),
        )
        for name, variable in by_name.items()
    ]
    return [
        (layout, [by_name[name] for name in layout.names])
        for layout in lay_out(candidates)
        if not _exists(layout, by_name)
    ]


def create(layout: SlabLayout, variables: Sequence[Any], *, storage: SlabStorage) -> None:
    """Make a slab; the Keras variables stay the objects that they are and become its segments.

    Args:
        layout: of the slab.
        variables: Keras variables, in the order of the layout.
        storage: makes it on the server.
    """
    natives = [variable._value for variable in variables]
    slab, views = storage.create_slab(natives, layout=layout, name=layout.digest, filled=False)
    slab.owners = tuple(weakref.ref(variable) for variable in variables)
    for variable, view in zip(variables, views, strict=True):
        variable._value = view


def slab_name(variable: Any) -> str | None:
    """Return the name of the vector that a Keras variable is a segment of; None: it is none."""
    slab = variable._value.slab
    return None if slab is None else slab.shared_name


def _sharing(variable: Any) -> list[Any]:
    """The Keras variables that lie in the same slab."""
    slab = variable._value.slab
    if slab is None:
        return []
    owners = [owner() for owner in slab.owners]
    return [owner for owner in owners if owner is not None and owner._value.slab is slab]


def _exists(layout: SlabLayout, by_name: dict[str, Any]) -> bool:
    slab = by_name[layout.names[0]]._value.slab
    return slab is not None and set(slab.layout.names) == set(layout.names)
