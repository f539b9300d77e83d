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
            raise DataError(f"{path}: the folder has no file.")
    else:
        found = glob.glob(str(place))
        if not found:
            raise DataError(f"{path}: there is no such file, and no file of such a pattern.")
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
                f"{file}: its name does not say its format; expected an end such as "
                f"{', '.join(each[0] for each in FORMATS.values())}, or data.source = one of "
                f"{', '.join(FORMATS)}."
            )
        found[ends[max(ends)]] = file
    if len(found) > 1:
        kinds = " and ".join(f"{name} ({file})" for name, file in sorted(found.items()))
        raise DataError(f"{kinds}: files of several formats; expected one.")
    return next(iter(found))
