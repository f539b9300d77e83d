"""What lies behind the header of a worker's push and of the reply to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.bridge.shards import joined, rule_of, shards_of
from tfps.runtime.message.coding import CodedVector
from tfps.runtime.message.wire import CallWire, gradient_of, gradient_of_name, name_of
from tfps.transport.layout import Layout
from tfps.transport.packing import Segments, joined_block, pack, unpack


class Body(NamedTuple):
    """A request without its header."""

    payload: tf.Tensor  # uint8 vector; it follows the segments
    ids: tf.Tensor | None = None  # int64, of rows; None: the request is about none
    segments: Segments | None = None  # what the payload begins with, not joined

    @property
    def joined(self) -> Body:
        """The same without segments."""
        if self.segments is None:
            return self
        return Body(self.segments.followed_by(self.payload), self.ids)


def encode(
    wire: CallWire,
    tensors: Mapping[str, tf.Tensor],
    rows: Body | None = None,
    *,
    code: Callable[[CodedVector, tf.Tensor], tf.Tensor] | None = None,
) -> Body:
    """The body of a push to one server.

    Args:
        wire: of the push.
        tensors: that it brings, by name.
        rows: of gradients of tables, which lie behind the rest.
        code: makes bytes of the vector of coded gradients; None: there are none.
    """
    if code is not None:
        tensors = {
            **tensors,
            **{each.name: code(each, each.vector(tensors)) for each in wire.coded},
        }
    body = Body(tf.zeros([0], tf.uint8)) if rows is None else rows
    return body._replace(segments=Segments.of(wire.request, tensors))


def decode_gradients(wire: CallWire, tensors: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The tensors of a push as its optimizer call wants them, where codecs have made bytes."""
    found = dict(tensors)
    for each in wire.coded:
        found.update(each.tensors(found.pop(each.name)))
    for native in wire.gradients.natives:
        if gradient_of(native) not in found:  # a slab whose variables have several codecs
            members = [
                (gradient_of_name(member.name), native.dtype.name, member.shape)
                for member in native.layout.members
            ]
            (block,) = Layout.of(members).blocks
            found[gradient_of(native)] = joined_block(block, found)
    return found


def encode_values(wire: CallWire, values: Sequence[tf.Tensor], *, seed: tf.Tensor) -> tf.Tensor:
    """The payload of a reply to a push, from the values of what it brings."""
    names = [native.shared_name for native in wire.values.natives]
    tensors = dict(zip(names, values, strict=True))
    for each in wire.coded_values:
        tensors[each.name] = each.codec.encode(each.vector(tensors), seed=seed)
    return pack(wire.server_reply, tensors)


def decode(
    layouts: Sequence[Layout],
    payloads: Sequence[tf.Tensor],
    variables: Iterable[Any],
    coded: Iterable[CodedVector] = (),
) -> list[tuple[Any, tf.Tensor]]:
    """Variables and their values, from what servers have sent; without those that did not come.

    Args:
        layouts: of the payloads.
        payloads: of the servers.
        variables: whole ones.
        coded: what codecs have made of some of them.
    """
    values: dict[str, tf.Tensor] = {}
    for layout, payload in zip(layouts, payloads, strict=True):
        values.update(unpack(layout, payload))
    for each in coded:
        values.update(each.tensors(values.pop(each.name)))
    found = []
    for variable in variables:
        names = [name_of(shard) for shard in shards_of(variable)]
        if names[0] in values:
            found.append((variable, joined([values[n] for n in names], rule_of(variable))))
    return found
