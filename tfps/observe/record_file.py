"""Reads the newest lines of a record while a job writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tfps.errors import ConfigError
from tfps.observe.record import RECORD_FILE, RECORD_VERSION, parse_line

NEWEST = 100  # lines: more than a minute


def read_newest_lines(folder: Path) -> list[dict[str, Any]]:
    """Return the newest lines of the record in a folder, the oldest first; at least one.

    Raises:
        ConfigError: there is no record, or it is of a newer version of tfps.
    """
    path = folder / RECORD_FILE
    try:
        texts = path.read_text(encoding="utf-8", errors="replace").splitlines()[-NEWEST:]
    except OSError as error:
        raise ConfigError(
            f"received {str(folder)!r}, whose {RECORD_FILE} cannot be read ({error.strerror}); "
            "expected the folder of a job: the output of `tfps train`, the --log-dir of `tfps "
            "run`, or TFPS_RECORD of any other script",
            source="RUN",
        ) from error
    lines = [fields for text in texts if (fields := parse_line(text)) is not None]
    if not lines:
        raise ConfigError(f"{path} has no line yet; wait for a second", source="RUN")
    if lines[-1].get("version", 0) > RECORD_VERSION:
        raise ConfigError(
            f"received a record of version {lines[-1]['version']}, expected at most "
            f"{RECORD_VERSION}; read {path} with the version of tfps that writes it",
            source="RUN",
        )
    return lines
