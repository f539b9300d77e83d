"""The private names of TensorFlow and Keras that tfps uses, read from `private_places.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfps.tested_versions import list_known_releases

FILE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class Package:
    """The private names of a package that tfps uses.

    Args:
        title: the name of the package in messages.
        tested: the release of each minor version that was tested, newest first.
        paths: a name that tfps uses -> the places where versions have it, newest first.
        attributes: a name of ``paths`` -> the attributes that tfps uses of a module, a class or
            its instances.
        features: a name of ``paths`` that older versions lack -> the public feature that they
            lack with it. Only that feature is refused there.
        parameters: a function, by its place in ``attributes`` -> its first parameters, as tfps
            passes them.
    """

    title: str
    tested: tuple[str, ...]
    paths: dict[str, tuple[str, ...]]
    attributes: dict[str, tuple[str, ...]]
    features: dict[str, str]
    parameters: dict[str, tuple[str, ...]]

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> Package:
        """Return the package of a table in the file."""
        paths, attributes, parameters = (
            {key: tuple(names) for key, names in table[part].items()}
            for part in ("paths", "attributes", "parameters")
        )
        return cls(
            title=table["title"],
            tested=list_known_releases(name),
            paths=paths,
            attributes=attributes,
            features=table["features"],
            parameters=parameters,
        )


PACKAGES = {
    name: Package.from_table(name, table) for name, table in tomllib.loads(FILE.read_text()).items()
}
TENSORFLOW, KERAS = PACKAGES["tensorflow"], PACKAGES["keras"]
