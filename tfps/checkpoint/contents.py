"""Find the places of a model's variables: their shards, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfps.bridge.variables.server_variable import ServerVariable
from tfps.bridge.variables.shards import get_row_rule, get_shards
from tfps.checkpoint.manifest import CHIEF, SavedTensor


@dataclass(frozen=True)
class StoredShard:
    """A shard of a variable on one server, or on the chief.

    Args:
        tensor: the variable's name.
        index: the index of the shard.
        server: the server's index, or `CHIEF`.
        native: TensorFlow's variable.
    """

    tensor: str
    index: int
    server: int
    native: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.native.shape)

    @property
    def rows(self) -> int:
        return self.shape[0] if self.shape else 1

    @property
    def row_items(self) -> int:
        return int(tf.TensorShape(self.shape[1:]).num_elements())

    @property
    def row_bytes(self) -> int:
        return self.row_items * int(self.native.dtype.size)


@dataclass(frozen=True)
class Contents:
    """Lists a model's variables and their shards.

    Args:
        tensors: the variables, by name.
        shards: the shards of all of them, in the order of names.
    """

    tensors: dict[str, SavedTensor]
    shards: tuple[StoredShard, ...]

    def get_shards_on(self, server: int) -> list[StoredShard]:
        """Return the shards on a server, or those on the chief."""
        return [shard for shard in self.shards if shard.server == server]

    @property
    def places(self) -> tuple[Any, ...]:
        """A key that changes when a variable moves."""
        return tuple(
            (shard.tensor, shard.index, shard.server, id(shard.native)) for shard in self.shards
        )


def find_contents(named: Mapping[str, Any], *, servers: Sequence[str] = ()) -> Contents:
    """Find the places of variables.

    Args:
        named: Keras variables by their names.
        servers: the device of each parameter server, if there are any.
    """
    tensors: dict[str, SavedTensor] = {}
    stored_shards: list[StoredShard] = []
    for name, variable in named.items():
        shards = [
            StoredShard(name, index, _server_index(shard._value, servers), shard._value)
            for index, shard in enumerate(get_shards(variable))
        ]
        tensors[name] = SavedTensor(
            shape=tuple(variable.shape),
            dtype=shards[0].native.dtype.name,
            path=variable.path,
            rule=get_row_rule(variable),
            servers=tuple(shard.server for shard in shards),
        )
        stored_shards += shards
    return Contents(tensors, tuple(stored_shards))


def _server_index(native: Any, servers: Sequence[str]) -> int:
    if isinstance(native, ServerVariable):
        return servers.index(native.device)
    return CHIEF
