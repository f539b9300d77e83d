"""Reads the free memory of a task's machine."""

from __future__ import annotations

import tensorflow as tf

from tfps.bridge import tensorflow_private as private

MEMINFO = "/proc/meminfo"


def read_free_memory_bytes(device: str) -> int | None:
    """Return the memory that a new process on a task's machine could use without swapping.

    Args:
        device: a device of the task.

    Returns:
        None if the machine's system is not Linux.
    """
    with tf.init_scope(), private.placed_on(device):
        try:
            text = tf.io.read_file(MEMINFO).numpy().decode()
        except tf.errors.NotFoundError:  # not Linux
            return None
    return parse_available_bytes(text)


def parse_available_bytes(text: str) -> int | None:
    r"""Parse the available memory in the text of ``/proc/meminfo``; None if the text lacks it.

    Example:

    >>> parse_available_bytes("MemTotal: 16 kB\nMemAvailable:       4 kB\n")
    4096
    """
    for line in text.splitlines():
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            return int(amount.split()[0]) << 10
    return None
