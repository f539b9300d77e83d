"""The versions of the packages in use, installed or from a folder."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata


def package_versions(packages: Iterable[str]) -> dict[str, str | None]:
    """Return the versions of Python, of tfps and of packages; None for a missing package.

    Args:
        packages: the names by which the packages are installed.

    >>> list(package_versions(["numpy", "no_such_package"]))
    ['python', 'tfps', 'numpy', 'no_such_package']
    >>> package_versions(["no_such_package"])["no_such_package"] is None
    True
    """
    # What runs, which need not be what is installed. The lowest floor does not import the whole.
    tfps = sys.modules["tfps"].__version__
    return {
        "python": platform.python_version(),
        "tfps": tfps,
        **{package: package_version(package) for package in packages},
    }


# How many parts of a version have to agree for a task to take part; None: all.
COMPARED_PARTS = {"tfps": None, "tensorflow": 2, "keras": 2, "python": 2}


def task_versions() -> dict[str, str | None]:
    """Return the versions that all tasks of a cluster have to share."""
    return package_versions(["tensorflow", "keras"])


def version_differences(
    other: Mapping[str, str | None], *, own: Mapping[str, str | None]
) -> list[str]:
    """Return a phrase for each package of which a task has another version than this process.

    Args:
        other: the versions of the task.
        own: the versions of this process.

    >>> own = {"tfps": "0.2.0", "tensorflow": "2.21.0", "keras": "3.15.1", "python": "3.11.7"}
    >>> version_differences({**own, "keras": "3.15.0"}, own=own)
    []
    >>> version_differences({**own, "tfps": "0.1.0", "python": "3.12.1"}, own=own)
    ['tfps 0.1.0 (here 0.2.0)', 'python 3.12.1 (here 3.11.7)']
    """

    def parts_to_compare(version: str | None, parts: int | None) -> list[str]:
        return (version or "").split(".")[:parts]

    return [
        f"{package} {other.get(package) or 'missing'} (here {own.get(package) or 'missing'})"
        for package, parts in COMPARED_PARTS.items()
        if parts_to_compare(other.get(package), parts) != parts_to_compare(own.get(package), parts)
    ]


def package_version(package: str) -> str | None:
    """Return the version of a package, or None if it is missing. Imports no package.

    A module may come from a distribution of another name (`tensorflow-cpu`), or from a folder on
    the path that is not installed.
    """
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        module = package.replace("-", "_")
    for distribution in metadata.packages_distributions().get(module, ()):
        return metadata.version(distribution)
    version = getattr(sys.modules.get(module), "__version__", None)
    return None if version is None else str(version)
