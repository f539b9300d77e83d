"""The plan: where each variable lies; a value that prints, compares and hashes."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """A Keras variable's place: a segment of one slab of one server.

    A slab is a flat vector that holds the variables which one optimizer updates together. Any
    other variable is a slab of its own, under its own name.

    Args:
        variable: the variable's path; that of a shard ends with the shard's number.
        rule: for a shard, the name of its row rule, the number of all rows, and of shards.
        is_mirrored: whether the place is a home: each worker trains a copy, by all-reduce.
    """

    variable: str
    server: int
    slab: str
    offset_items: int
    shape: tuple[int, ...]
    dtype: str
    item_bytes: int = 4
    rule: tuple[str, int, int] | None = None
    is_mirrored: bool = False

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.item_bytes


@dataclass(frozen=True)
class Plan:
    """The places of all variables of a job.

    Example:

    >>> plan = Plan(servers=2, views=(
    ...     View("kernel", 0, "slab_4", 0, (784, 128), "float32"),
    ...     View("bias", 0, "slab_4", 100352, (128,), "float32"),
    ...     View("table", 1, "table_2", 0, (1000, 8), "float32")))
    >>> plan.bytes_per_server
    (401920, 32000)
    >>> print(plan)
    server  bytes    variable  shape       dtype    slab     offset
    0       401.4 kB kernel    (784, 128)  float32  slab_4   0
    0       512 B    bias      (128,)      float32  slab_4   100352
    1       32.0 kB  table     (1000, 8)   float32  table_2  0
    imbalance (largest / mean): 1.85
    """

    servers: int
    views: tuple[View, ...] = ()

    @property
    def plan_id(self) -> int:
        """A stable 62-bit hash; both sides of a message must have traced the same plan."""
        text = repr((self.servers, self.views)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 2

    @property
    def bytes_per_server(self) -> tuple[int, ...]:
        totals: dict[int, int] = defaultdict(int)
        for view in self.views:
            totals[view.server] += view.size_bytes
        return tuple(totals[server] for server in range(self.servers))

    @property
    def imbalance(self) -> float:
        """Bytes of the fullest server over the mean; 1.0 is perfect."""
        mean = sum(self.bytes_per_server) / self.servers
        return max(self.bytes_per_server) / mean if mean else 1.0

    def __str__(self) -> str:
        from tfps.units import format_bytes

        rows = [("server", "bytes", "variable", "shape", "dtype", "slab", "offset")]
        rows += [
            (
                f"{v.server} + workers" if v.is_mirrored else str(v.server),
                format_bytes(v.size_bytes),
                v.variable,
                str(v.shape),
                v.dtype,
                v.slab,
                str(v.offset_items),
            )
            for v in self.views
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        gaps = (2, 1, 2, 2, 2, 2, 0)
        lines = [
            "".join(
                cell.ljust(width + gap) for cell, width, gap in zip(row, widths, gaps, strict=True)
            ).rstrip()
            for row in rows
        ]
        lines.append(f"imbalance (largest / mean): {self.imbalance:.2f}")
        mirrored_bytes = sum(v.size_bytes for v in self.views if v.is_mirrored)
        if mirrored_bytes:
            lines.append(f"trained by all-reduce, on each worker: {format_bytes(mirrored_bytes)}")
        return "\n".join(lines)
