"""Which versions of packages are at work here, however they came here."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from importlib import metadata


def package_versions(packages: Iterable[str]) -> dict[str, str | None]:
    """Return the versions of Python, of tfps and of packages; None for one that is not here.

    Args:
        packages: names, as they are installed by.

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


def package_version(package: str) -> str | None:
    """Return the version of a package; None if it is not here.

    A module may come from a distribution of another name (`tensorflow-cpu`), or from a folder on
    the path, of which nothing is installed. No package is imported for it.
    """
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        module = package.replace("-", "_")
    for distribution in metadata.packages_distributions().get(module, ()):
        return metadata.version(distribution)
    version = getattr(sys.modules.get(module), "__version__", None)
    return None if version is None else str(version)
