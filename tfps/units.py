"""Formats quantities for messages."""

from __future__ import annotations


def format_bytes(count: int) -> str:
    """Format a number of bytes in decimal units.

    >>> format_bytes(512), format_bytes(401408), format_bytes(2_500_000_000)
    ('512 B', '401.4 kB', '2.5 GB')
    """
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.95 or unit == "TB":  # 999.95 would print as 1000.0
            return f"{value:.1f} {unit}"
    raise AssertionError("unreachable")


def format_seconds(seconds: float) -> str:
    """Format a duration.

    >>> format_seconds(0.00042), format_seconds(3.2), format_seconds(192)
    ('0.42 ms', '3.2 s', '3 min 12 s')
    """
    if seconds < 0.9995:  # from here on three digits round to the next unit
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 119.5:
        return f"{seconds:.3g} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds} s"


def counted(number: int, noun: str) -> str:
    """Format a number of things, followed by their noun.

    >>> counted(1, "worker"), counted(5346, "step")
    ('1 worker', '5,346 steps')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def count_tasks(*, workers: int, ps: int) -> str:
    """Format the size of a cluster.

    >>> count_tasks(workers=2, ps=1)
    '2 workers and 1 parameter server'
    """
    return f"{counted(workers, 'worker')} and {counted(ps, 'parameter server')}"
