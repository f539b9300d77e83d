"""How much memory a task's machine can still give."""

from __future__ import annotations

import tensorflow as tf

from tfps.bridge import tensorflow_private as private

_MEMINFO = "/proc/meminfo"


def free_memory_bytes(device: str) -> int | None:
    """What a new process could have without swapping, by the system of a task; None: not known.

    Args:
        device: of the task.
    """
    with tf.init_scope(), private.placed_on(device):
        try:
            text = tf.io.read_file(_MEMINFO).numpy().decode()
        except tf.errors.NotFoundError:  # no Linux
            return None
    return available_bytes(text)


def available_bytes(text: str) -> int | None:
    r"""What Linux's account of the memory says is available.

    Example:

    >>> available_bytes("MemTotal: 16 kB\nMemAvailable:       4 kB\n")
    4096
    """
    for line in text.splitlines():
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            return int(amount.split()[0]) << 10
    return None
