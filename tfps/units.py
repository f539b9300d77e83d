"""How quantities print."""

from __future__ import annotations


def format_bytes(count: int) -> str:
    """Bytes for people, in decimal units.

    >>> format_bytes(512), format_bytes(401408), format_bytes(2_500_000_000)
    ('512 B', '401.4 kB', '2.5 GB')
    """
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 1000 or unit == "TB":
            return f"{value:.1f} {unit}"
    raise AssertionError("unreachable")


def format_seconds(seconds: float) -> str:
    """A duration for people.

    >>> format_seconds(0.00042), format_seconds(3.2), format_seconds(192)
    ('0.42 ms', '3.2 s', '3 min 12 s')
    """
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"
