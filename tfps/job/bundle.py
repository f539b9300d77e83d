"""Where the shipped job files and examples are: in a checkout, or inside the wheel."""

from __future__ import annotations

import difflib
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import tfps
from tfps.errors import ConfigError

PACKAGE = Path(tfps.__file__).resolve().parent
DEFAULT_CONFIG = "fashion_mnist.toml"


@dataclass(frozen=True)
class Example:
    """A shipped example that job files can name: its models and its data.

    Args:
        name: its folder in ``examples/``.
        folder: that folder.
    """

    name: str
    folder: Path

    @property
    def model(self) -> ModuleType:
        """The module with the models; imports Keras."""
        return self._module("model")

    @property
    def data(self) -> ModuleType:
        """The module with the data."""
        return self._module("data")

    def _module(self, name: str) -> ModuleType:
        parent = str(self.folder.parent)
        if parent not in sys.path:
            sys.path.append(parent)
        return importlib.import_module(f"{self.name}.{name}")


def folder(name: str) -> Path:
    """Return the folder ``configs`` or ``examples``.

    A checkout has them beside the package; a wheel carries them inside.

    Args:
        name: of the folder.
    """
    bundled = PACKAGE / "bundled" / name
    return bundled if bundled.is_dir() else PACKAGE.parent / name


def config_path(argument: str | None) -> Path:
    """Return the job file that an argument means: a path, or the name of a shipped one.

    A shipped one is found from any folder by its name, its file's name, and as in a checkout.

    Args:
        argument: None is the reference job.

    Raises:
        ConfigError: there is no such file, and no shipped one of that name.

    Example:

    >>> config_path("fashion_mnist") == config_path("configs/fashion_mnist.toml")
    True
    """
    if argument is None:
        return folder("configs") / DEFAULT_CONFIG
    path = Path(argument)
    if path.exists() and not path.is_dir():
        return path
    shipped = {file.stem: file for file in sorted(folder("configs").glob("*.toml"))}
    name = argument.removeprefix("./").removeprefix("configs/").removesuffix(".toml")
    if name in shipped:
        return shipped[name]
    close = difflib.get_close_matches(name, shipped, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    what = "is a folder" if path.is_dir() else "there is no such file"
    raise ConfigError(
        f"{what}; {hint}expected the path of a job file, or the name of a shipped one: "
        f"{', '.join(shipped)}",
        source=argument,
    )


def example(name: str) -> Example:
    """Return a shipped example by its name.

    Raises:
        ConfigError: there is none of that name.
    """
    examples = folder("examples")
    names = sorted(path.parent.name for path in examples.glob("*/data.py"))
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(f"example: received {name!r}; {hint}allowed: {', '.join(names)}")
    return Example(name=name, folder=examples / name)
