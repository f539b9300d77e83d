"""Encodes and decodes the payloads of pushes and of their replies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.variables.shards import get_row_rule, get_shards, join_by_rule
from tfps.runtime.message.coding import CodedVector
from tfps.runtime.message.moved_state import unpack_moves
from tfps.runtime.message.wire import (
    CallWire,
    get_gradient_name,
    get_native_gradient_name,
    get_variable_name,
    to_gradient_name,
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
        """The body with its segments joined into the payload."""
        if self.segments is None:
            return self
        return Body(self.segments.join_with(self.payload), self.ids)


def encode_push(
    wire: CallWire,
    tensors: Mapping[str, tf.Tensor],
    row_body: Body | None = None,
    *,
    encode_vector: Callable[[CodedVector, tf.Tensor], tf.Tensor] | None = None,
) -> Body:
    """Encode the body of a push to one server.

    Args:
        wire: the message format of the push.
        tensors: the tensors of the push, by name.
        row_body: rows of tables' gradients, which follow the rest.
        encode_vector: encodes the vector of coded gradients; None: there are none.
    """
    body = Body(tf.zeros([0], tf.uint8)) if row_body is None else row_body
    if encode_vector is not None:
        data = {each.name: encode_vector(each, each.build_vector(tensors)) for each in wire.coded}
        tensors = {**tensors, **data}
    return body._replace(segments=Segments.pack(wire.request, tensors))


def measure_coded_parts(wire: CallWire, tensors: Mapping[str, Any]) -> list[CodedPart]:
    """Return the sizes of the encoded parts of a push before and after encoding."""
    row_parts = [
        part
        for table, each in zip(wire.tables, wire.row_formats, strict=True)
        for part in each.measure_sizes(tf.size(tensors[get_gradient_name(table)].indices, tf.int64))
    ]
    return [*wire.encoded_request_parts, *row_parts]


def decode_gradients(wire: CallWire, tensors: Mapping[str, tf.Tensor]) -> dict[str, Any]:
    """Decode the tensors of a push for its optimizer call."""
    decoded = dict(tensors)
    for each in wire.coded:
        decoded.update(each.decode_tensors(decoded.pop(each.name)))
    for native in wire.gradients.natives:
        if (
            get_native_gradient_name(native) not in decoded
        ):  # a slab whose variables have several codecs
            members = [
                (to_gradient_name(member.name), native.dtype.name, member.shape)
                for member in native.layout.members
            ]
            (block,) = Layout.from_entries(members).blocks
            decoded[get_native_gradient_name(native)] = join_block(block, decoded)
    return {**decoded, **unpack_moves(wire.moves, decoded)}


def collect_reply_values(wire: CallWire, values: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
    """Return the values in a reply to a push, by name, and the vectors of coded values."""
    names = [native.shared_name for native in wire.values.natives]
    tensors = dict(zip(names, values, strict=True))
    return {**tensors, **{each.name: each.build_vector(tensors) for each in wire.coded_values}}


def encode_values(
    wire: CallWire,
    values: Mapping[str, tf.Tensor],
    *,
    seed: tf.Tensor,
    already_encoded: Mapping[str, tf.Tensor],
) -> tf.Tensor:
    """Encode the newest parameters as the payload of a server's reply to a push.

    Args:
        wire: the message format of the push.
        values: the result of `collect_reply_values`.
        seed: the seed of codecs that draw random numbers.
        already_encoded: the bytes of vectors that are already encoded, by name.
    """
    data = {
        each.name: each.codec.encode(values[each.name], seed=seed)
        for each in wire.coded_values
        if each.name not in already_encoded
    }
    return pack(wire.server_reply, {**values, **data, **already_encoded})


def decode_values(
    layouts: Sequence[Layout],
    payloads: Sequence[tf.Tensor],
    variables: Iterable[Any],
    coded: Iterable[CodedVector] = (),
    *,
    decode_reply: Callable[
        [CodedVector, tf.Tensor], Mapping[str, tf.Tensor]
    ] = CodedVector.decode_tensors,
) -> list[tuple[Any, tf.Tensor]]:
    """Decode payloads, and return the variables that they contain with their values.

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
    values_of_variables = []
    for variable in variables:
        names = [get_variable_name(shard) for shard in get_shards(variable)]
        if names[0] in values:
            values_of_variables.append(
                (variable, join_by_rule([values[n] for n in names], get_row_rule(variable)))
            )
    return values_of_variables
