"""Lays variables out in slabs, the flat vectors of a server. Pure: no TensorFlow."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tfps.partitioners.variable_spec import ITEM_BYTES

# TensorFlow shares a slice's buffer instead of copying it when the slice starts on 64 bytes.
ALIGNMENT_BYTES = 64


def padded_items(items: int, dtype: str) -> int:
    """Return the items that a tensor takes up in a slab: a multiple of 64 bytes, at least 64.

    Payloads and slabs follow the same rule, so a slab's bytes are those of its variables packed.

    Example:

    >>> padded_items(17, "float32")
    32
    """
    items_per_block = ALIGNMENT_BYTES // ITEM_BYTES[dtype]
    return max(1, math.ceil(items / items_per_block)) * items_per_block


@dataclass(frozen=True)
class Candidate:
    """A variable that may share a slab with others of its server, dtype and group.

    Args:
        name: a unique name.
        server: the index of its server.
        dtype: a dtype of `ITEM_BYTES`.
        shape: the shape, fully known.
        group: equal for variables that are always updated together and in the same way.
    """

    name: str
    server: int
    dtype: str
    shape: tuple[int, ...]
    group: Hashable = None


@dataclass(frozen=True)
class Member:
    """A variable's place in its slab."""

    name: str
    shape: tuple[int, ...]
    offset_items: int  # the index of its first item in the slab

    @property
    def items(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class SlabLayout:
    """One flat vector and the variables in it, end to end, each aligned to 64 bytes.

    Example:

    >>> layout = SlabLayout.from_variables(0, "float32", [("kernel", (3, 7)), ("bias", (7,))])
    >>> [(member.name, member.offset_items) for member in layout.members]
    [('kernel', 0), ('bias', 32)]
    >>> layout.items
    48
    """

    server: int  # the index of the server
    dtype: str
    members: tuple[Member, ...]  # in the order of their offsets

    @classmethod
    def from_variables(
        cls, server: int, dtype: str, variables: Sequence[tuple[str, tuple[int, ...]]]
    ) -> SlabLayout:
        """Lay out variables, given as (name, shape), in their order."""
        members: list[Member] = []
        offset_items = 0
        for name, shape in variables:
            members.append(Member(name, shape, offset_items))
            offset_items += padded_items(members[-1].items, dtype)
        return cls(server, dtype, tuple(members))

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that are the same for the same variables in the same places."""
        text = repr((self.server, self.dtype, self.members)).encode()
        return hashlib.blake2b(text, digest_size=4).hexdigest()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)

    @property
    def items(self) -> int:
        return sum(padded_items(member.items, self.dtype) for member in self.members)

    def renamed(self, names: Sequence[str]) -> SlabLayout:
        """Return the same layout for other variables, such as an optimizer's slots."""
        members = zip(names, self.members, strict=True)
        return SlabLayout(
            self.server,
            self.dtype,
            tuple(Member(name, place.shape, place.offset_items) for name, place in members),
        )


def lay_out(candidates: Sequence[Candidate]) -> tuple[SlabLayout, ...]:
    """Return one slab per server, dtype and group; each keeps the candidates' order.

    Example:

    >>> slabs = lay_out([
    ...     Candidate("kernel", 0, "float32", (4, 4), group="decayed"),
    ...     Candidate("bias", 0, "float32", (4,)),
    ...     Candidate("head", 0, "float32", (4, 2), group="decayed")])
    >>> [slab.names for slab in slabs]
    [('kernel', 'head'), ('bias',)]

    Raises:
        ValueError: a name appears twice.
    """
    names = [candidate.name for candidate in candidates]
    if len(set(names)) != len(names):
        repeated = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(
            f"names: received {repeated} twice, expected unique names of variables in slabs"
        )
    groups: dict[tuple[int, str, Hashable], list[Candidate]] = {}
    for candidate in candidates:
        key = (candidate.server, candidate.dtype, candidate.group)
        groups.setdefault(key, []).append(candidate)
    return tuple(
        SlabLayout.from_variables(
            server, dtype, [(member.name, member.shape) for member in members]
        )
        for (server, dtype, _), members in groups.items()
    )
