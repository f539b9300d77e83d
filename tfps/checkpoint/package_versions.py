"""Which versions of packages wrote a checkpoint."""

from __future__ import annotations

import importlib.metadata
import platform

PACKAGES = ("tfps", "tensorflow", "keras", "numpy")


def package_versions() -> dict[str, str]:
    """Return the version of Python, and of each package that what is written depends on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        found[name] = importlib.metadata.version(name)
    return found
