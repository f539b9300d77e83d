"""`metrics.jsonl`: a job's statistics of each second, one JSON object a line. Pure."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from typing import Any

RECORD_FILE = "metrics.jsonl"
RECORD_VERSION = 1
# Lines older than this become fewer: one of each ten seconds stays.
FINE_S = 3600.0
COARSE_PERIOD_S = 10.0


def format_line(fields: Mapping[str, Any], *, now_s: float, began_s: float) -> str:
    """Return a line of the record.

    Args:
        fields: the statistics, as values for JSON.
        now_s: the time of the line, in seconds since the Unix epoch.
        began_s: the time at which this strategy began its record, which tells strategies apart.

    Example:

    >>> format_line({"tasks": {}}, now_s=61.5, began_s=60.0)
    '{"version":1,"time":"1970-01-01T00:01:01.500+00:00","began_s":60.0,"tasks":{}}'
    """
    time = datetime.datetime.fromtimestamp(now_s, datetime.UTC).isoformat(timespec="milliseconds")
    line = {"version": RECORD_VERSION, "time": time, "began_s": began_s, **fields}
    return json.dumps(line, separators=(",", ":"))


def parse_line(text: str) -> dict[str, Any] | None:
    """Return the fields of a line; None for one that a crash has cut."""
    try:
        fields = json.loads(text)
        fields["time_s"] = datetime.datetime.fromisoformat(fields["time"]).timestamp()
    except (ValueError, KeyError, TypeError):
        return None
    return dict(fields)


def thin_lines(lines: Iterable[str], *, now_s: float) -> list[str]:
    """Return the lines that stay: all of the last hour, and before it one of each ten seconds.

    Args:
        lines: the lines of a record, the oldest first.
        now_s: the present time, in seconds since the Unix epoch.
    """
    kept, slots = [], set()
    for text in lines:
        fields = parse_line(text)
        if fields is None:
            continue
        slot = fields.get("began_s"), fields["time_s"] // COARSE_PERIOD_S
        if fields["time_s"] > now_s - FINE_S or slot not in slots:
            kept.append(text)
            slots.add(slot)
    return kept
