"""What of a model lies where: the pieces of its variables, by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfps.bridge.pieces import pieces_of, rule_of
from tfps.bridge.server_variable import ServerVariable
from tfps.checkpoint.manifest import CHIEF, Tensor


@dataclass(frozen=True)
class Piece:
    """What one server, or the chief, holds of a variable.

    Args:
        tensor: the variable's name.
        shard: which piece of it.
        server: the server's index, or `CHIEF`.
        native: TensorFlow's variable.
    """

    tensor: str
    shard: int
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
    """A model's variables.

    Args:
        tensors: by name.
        pieces: of all of them, in the order of names.
    """

    tensors: dict[str, Tensor]
    pieces: tuple[Piece, ...]

    def on(self, server: int) -> list[Piece]:
        """The pieces on a server, or the chief's."""
        return [piece for piece in self.pieces if piece.server == server]

    @property
    def places(self) -> tuple[Any, ...]:
        """Changes when a variable moves."""
        return tuple(
            (piece.tensor, piece.shard, piece.server, id(piece.native)) for piece in self.pieces
        )


def contents_of(named: Mapping[str, Any], *, servers: Sequence[str] = ()) -> Contents:
    """Look where variables lie.

    Args:
        named: Keras variables by their names.
        servers: the device of each parameter server, if there are any.
    """
    tensors: dict[str, Tensor] = {}
    found: list[Piece] = []
    for name, variable in named.items():
        pieces = [
            Piece(name, shard, _server_of(piece._value, servers), piece._value)
            for shard, piece in enumerate(pieces_of(variable))
        ]
        tensors[name] = Tensor(
            shape=tuple(variable.shape),
            dtype=pieces[0].native.dtype.name,
            path=variable.path,
            rule=rule_of(variable),
            servers=tuple(piece.server for piece in pieces),
        )
        found += pieces
    return Contents(tensors, tuple(found))


def _server_of(native: Any, servers: Sequence[str]) -> int:
    if isinstance(native, ServerVariable):
        return servers.index(native.device)
    return CHIEF
