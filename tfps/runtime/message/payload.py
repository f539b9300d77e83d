"""The payloads of a worker's push and of the reply to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.variables.shards import joined, rule_of, shards_of
from tfps.runtime.message.coding import CodedVector
from tfps.runtime.message.moved_state import moved_of
from tfps.runtime.message.wire import (
    CallWire,
    gradient_name,
    gradient_of,
    gradient_of_name,
    name_of,
)
from tfps.transport.layout import Layout
from tfps.transport.packing import Segments, join_block, pack, unpack
from tfps.transport.traffic import CodedPart


class Body(NamedTuple):
    """A request without its header."""

    payload: tf.Tensor  # uint8 vector; it follows the segments
    ids: tf.Tensor | None = None  # int64, of rows; None: the request has none
    segments: Segments | None = None  # parts of the payload before the rest, not joined

    @property
    def joined(self) -> Body:
        """The body with its segments joined."""
        if self.segments is None:
            return self
        return Body(self.segments.join_with(self.payload), self.ids)


def encode(
    wire: CallWire,
    tensors: Mapping[str, tf.Tensor],
    rows: Body | None = None,
    *,
    code: Callable[[CodedVector, tf.Tensor], tf.Tensor] | None = None,
) -> Body:
    """Return the body of a push to one server.

    Args:
        wire: the message format of the push.
        tensors: the tensors of the push, by name.
        rows: rows of tables' gradients, which follow the rest.
        code: encodes the vector of coded gradients; None: there are none.
    """
    body = Body(tf.zeros([0], tf.uint8)) if rows is None else rows
    if code is not None:
        data = {each.name: code(each, each.vector(tensors)) for each in wire.coded}
        tensors = {**tensors, **data}
    return body._replace(segments=Segments.pack(wire.request, tensors))


def coded_up(wire: CallWire, tensors: Mapping[str, Any]) -> list[CodedPart]:
    """Return the sizes of the encoded parts of a push, for the counters."""
    rows = [
        part
        for table, each in zip(wire.tables, wire.row_formats, strict=True)
        for part in each.counted(tf.size(tensors[gradient_name(table)].indices, tf.int64))
    ]
    return [*wire.coded_up, *rows]


def decode_gradients(wire: CallWire, tensors: Mapping[str, tf.Tensor]) -> dict[str, Any]:
    """Return the tensors of a push for its optimizer call, decoded."""
    found = dict(tensors)
    for each in wire.coded:
        found.update(each.tensors(found.pop(each.name)))
    for native in wire.gradients.natives:
        if gradient_of(native) not in found:  # a slab whose variables have several codecs
            members = [
                (gradient_of_name(member.name), native.dtype.name, member.shape)
                for member in native.layout.members
            ]
            (block,) = Layout.from_entries(members).blocks
            found[gradient_of(native)] = join_block(block, found)
    return {**found, **moved_of(wire.moves, found)}


def named_values(wire: CallWire, values: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
    """Return the values in a reply to a push, by name, and the vectors of coded values."""
    names = [native.shared_name for native in wire.values.natives]
    tensors = dict(zip(names, values, strict=True))
    return {**tensors, **{each.name: each.vector(tensors) for each in wire.coded_values}}


def encode_values(
    wire: CallWire,
    values: Mapping[str, tf.Tensor],
    *,
    seed: tf.Tensor,
    sent: Mapping[str, tf.Tensor],
) -> tf.Tensor:
    """Return the payload of a server's reply to a push: the newest parameters, encoded.

    Args:
        wire: the message format of the push.
        values: the result of `named_values`.
        seed: the seed of codecs that draw random numbers.
        sent: the bytes of vectors that are already encoded, by name.
    """
    data = {
        each.name: each.codec.encode(values[each.name], seed=seed)
        for each in wire.coded_values
        if each.name not in sent
    }
    return pack(wire.server_reply, {**values, **data, **sent})


def decode(
    layouts: Sequence[Layout],
    payloads: Sequence[tf.Tensor],
    variables: Iterable[Any],
    coded: Iterable[CodedVector] = (),
    *,
    decode_reply: Callable[[CodedVector, tf.Tensor], Mapping[str, tf.Tensor]] = CodedVector.tensors,
) -> list[tuple[Any, tf.Tensor]]:
    """Return variables and their values from payloads, without those that did not come.

    Args:
        layouts: the layouts of the payloads.
        payloads: by server.
        variables: whole variables.
        coded: the vectors that codecs have encoded.
        decode_reply: returns the values, by name, from a vector's bytes.
    """
    values: dict[str, tf.Tensor] = {}
    for layout, payload in zip(layouts, payloads, strict=True):
        values.update(unpack(layout, payload))
    for each in coded:
        values.update(decode_reply(each, values.pop(each.name)))
    found = []
    for variable in variables:
        names = [name_of(shard) for shard in shards_of(variable)]
        if names[0] in values:
            found.append((variable, joined([values[n] for n in names], rule_of(variable))))
    return found
