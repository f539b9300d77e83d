"""The files that `data.path` means, their format, and whether they can be read here."""

from __future__ import annotations

import glob
from pathlib import Path

from recommender.settings import ClicksSection
from tfps.errors import DataError

# By the end of a file's name; one of Criteo's may also be compressed.
FORMATS = {
    "criteo": (".txt", ".tsv", ".txt.gz", ".tsv.gz", ".gz"),
    "tfrecord": (".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecords.gz"),
    "parquet": (".parquet",),
}


def files_of(path: str) -> list[str]:
    """Return the files that a path means, in the order of their names.

    Args:
        path: a file, a folder, or a pattern such as ``day_*.gz``.

    Raises:
        DataError: there is none.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        found = [str(file) for file in place.iterdir() if file.is_file()]
        found = [file for file in found if not Path(file).name.startswith((".", "_"))]
        if not found:
            raise DataError(
                f"data.path: received {path!r}, a folder without data files; add files to it, or "
                "correct the path"
            )
    else:
        found = glob.glob(str(place))
        if not found:
            raise DataError(
                f"data.path: received {path!r}, expected a file, a folder, or a pattern that "
                "matches files; correct the path"
            )
    return sorted(found)


def format_of(files: list[str], data: ClicksSection) -> str:
    """Return the format of some files: ``criteo``, ``tfrecord`` or ``parquet``.

    Args:
        files: one at least.
        data: whose source says it, or ``auto``: by their names.

    Raises:
        DataError: their names do not say it, or not all the same.
    """
    if data.source != "auto":
        return data.source
    found: dict[str, str] = {}
    for file in files:
        ends = {
            len(end): name
            for name, all_ends in FORMATS.items()
            for end in all_ends
            if file.endswith(end)
        }
        if not ends:
            raise DataError(
                f"{file}: received an unknown suffix, expected one such as "
                f"{', '.join(each[0] for each in FORMATS.values())}; rename the file, or set "
                f"data.source to one of {', '.join(FORMATS)}"
            )
        found[ends[max(ends)]] = file
    if len(found) > 1:
        kinds = " and ".join(f"{name} ({file})" for name, file in sorted(found.items()))
        raise DataError(
            f"data.path: received {kinds}, expected one format; use a pattern for one of them"
        )
    return next(iter(found))
