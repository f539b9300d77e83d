"""Remove from a process's tasks the functions that the process has garbage-collected."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from tfps.bridge import tensorflow_private as private
from tfps.bridge.closures.connection import is_connected
from tfps.bridge.functions.function_registration import take_collected_functions
from tfps.recovery.probing.probe import Task, open_probe_channels

logger = logging.getLogger(__name__)

METHOD = "/tensorflow.eager.EagerService/Enqueue"
# Fields of `EnqueueRequest`, `QueueItem` and `RemoveFunctionOp`; TensorFlow's package has no class
# for them.
CONTEXT_ID, QUEUE, REMOVE_FUNCTION, FUNCTION_NAME = 1, 3, 8, 1
FIXED_64, DELIMITED = 1, 2


def remove_collected_functions(addresses: Mapping[Task, str], *, deadline_s: float) -> None:
    """Free the graphs, kernels and buffers of garbage-collected functions on tasks.

    TensorFlow's own removal waits for each task without a deadline. A task that does not reply
    to this one in time keeps its functions until it ends.

    Args:
        addresses: the address of each task, ``host:port``.
        deadline_s: the seconds that a reply may take.
    """
    if not is_connected(addresses.values()):
        return
    names = take_collected_functions()
    if not names:
        return
    context_id, _ = private.read_incarnations()
    messages = [encode_removal(name, context_id=context_id) for name in names]
    with open_probe_channels(addresses, method=METHOD) as methods:
        calls = [
            (task, method.future(message, timeout=deadline_s))
            for task, method in methods.items()
            for message in messages
        ]
        failed = {task: error for task, call in calls if (error := call.exception())}
    for task, error in failed.items():
        logger.debug("%s keeps a function: %s", task, error)


def encode_removal(name: str, *, context_id: int) -> bytes:
    """Return the request that removes a function, an encoded `EnqueueRequest`.

    >>> encode_removal("f", context_id=7).hex(" ")
    '09 07 00 00 00 00 00 00 00 1a 05 42 03 0a 01 66'
    """
    item = _encode_field(REMOVE_FUNCTION, _encode_field(FUNCTION_NAME, name.encode()))
    where = bytes([CONTEXT_ID << 3 | FIXED_64]) + context_id.to_bytes(8, "little")
    return where + _encode_field(QUEUE, item)


def _encode_field(number: int, value: bytes) -> bytes:
    """Encode a length-delimited field of a protocol buffer."""
    return bytes([number << 3 | DELIMITED, *_encode_varint(len(value))]) + value


def _encode_varint(number: int) -> Iterator[int]:
    """Encode a varint of a protocol buffer."""
    while number > 0x7F:
        yield number & 0x7F | 0x80
        number >>= 7
    yield number
