"""Ask tasks for their name and incarnation, which the reply to a probe contains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import grpc

from tfps.recovery.probing.probe import Task, open_probe_channels

# Fields of `GetStatusResponse` and `DeviceAttributes`; TensorFlow's package has no class for them.
DEVICE_ATTRIBUTES, NAME, INCARNATION = 1, 1, 6
FIXED_64, DELIMITED, FIXED_32 = 1, 2, 5


class TaskIdentity(NamedTuple):
    """The result of asking one task for its incarnation.

    Attributes:
        process_incarnation: that of the process that replied; None: no process, or another task,
            did.
        is_gone: whether the task has ended: no process listens at its address, or another task.
        other: the other task that replied instead, such as ``worker 1``.
    """

    process_incarnation: int | None
    is_gone: bool
    other: str = ""


def ask_identities(addresses: Mapping[Task, str], *, deadline_s: float) -> dict[Task, TaskIdentity]:
    """Ask tasks in parallel for their incarnations.

    Args:
        addresses: the address of each task, ``host:port``.
        deadline_s: the seconds that a reply may take.
    """
    identities = {}
    with open_probe_channels(addresses) as methods:
        calls = {task: m.future(b"", timeout=deadline_s) for task, m in methods.items()}
        for task, call in calls.items():
            error = call.exception()
            if error is None:
                identities[task] = _parse_identity(task, call.result())
            else:
                identities[task] = TaskIdentity(None, error.code() is grpc.StatusCode.UNAVAILABLE)
    return identities


def _parse_identity(task: Task, response: bytes) -> TaskIdentity:
    name, process_incarnation = parse_first_device(response)
    kind, index = task
    if name.startswith(f"/job:{kind}/replica:0/task:{index}/"):
        return TaskIdentity(process_incarnation, is_gone=False)
    return TaskIdentity(None, is_gone=True, other=task_name(name))


def parse_first_device(response: bytes) -> tuple[str, int]:
    """Return the name and the incarnation of the first device in a `GetStatusResponse`.

    >>> parse_first_device(bytes([10, 12, 10, 1, 97, 49, 7, 0, 0, 0, 0, 0, 0, 0]))
    ('a', 7)
    """
    devices = (value for field, value in _parse_fields(response) if field == DEVICE_ATTRIBUTES)
    fields = dict(_parse_fields(next(devices)))
    return fields[NAME].decode(), int.from_bytes(fields[INCARNATION], "little")


def task_name(device: str) -> str:
    """Return the name that messages use for the task of a device.

    >>> task_name("/job:worker/replica:0/task:1/device:CPU:0")
    'worker 1'
    """
    parts = dict(part.split(":", 1) for part in device.strip("/").split("/"))
    return f"{parts.get('job', device)} {parts.get('task', '')}".strip()


def _parse_fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of each field of a protocol buffer; skips varint fields."""
    position = 0
    while position < len(message):
        tag, position = _parse_varint(message, position)
        field, kind = tag >> 3, tag & 7
        if kind in (FIXED_64, FIXED_32):
            size = 8 if kind == FIXED_64 else 4
        elif kind == DELIMITED:
            size, position = _parse_varint(message, position)
        else:
            _, position = _parse_varint(message, position)
            continue
        yield field, message[position : position + size]
        position += size


def _parse_varint(message: bytes, position: int) -> tuple[int, int]:
    """Decode a varint; returns its value and the position behind it."""
    value = shift = 0
    while True:
        byte = message[position]
        value, position, shift = value | (byte & 127) << shift, position + 1, shift + 7
        if not byte & 128:
            return value, position
