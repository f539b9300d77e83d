"""Finds the shipped job files and examples: in a checkout, or inside the wheel."""

from __future__ import annotations

import difflib
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import tfps
from tfps.config.schema import JobConfig
from tfps.errors import ConfigError

PACKAGE = Path(tfps.__file__).resolve().parent
DEFAULT_CONFIG = "fashion_mnist.toml"
SETTINGS, WORKLOAD = "settings.py", "workload.py"  # of an example


@dataclass(frozen=True)
class Example:
    """An example that a job trains: a folder with a `settings.py` and a `workload.py`.

    Args:
        name: the name of its package, which is the folder's name.
        folder: the folder.
    """

    name: str
    folder: Path

    def job(self) -> type[JobConfig]:
        """Return the schema of the example's job files: ``JOB`` of its `settings.py`.

        Raises:
            ConfigError: `settings.py` has no such class.
        """
        job_class = getattr(self.module("settings"), "JOB", None)
        if isinstance(job_class, type) and issubclass(job_class, JobConfig):
            return job_class
        raise ConfigError(
            f"example: {self.folder / 'settings.py'} has JOB = {job_class!r}, expected a subclass "
            "of tfps.config.JobConfig"
        )

    def module(self, name: str) -> ModuleType:
        """Import a module of the example.

        Args:
            name: such as ``workload``.

        Raises:
            ConfigError: Python knows another package by the folder's name.
        """
        parent = str(self.folder.parent)
        if parent not in sys.path:
            sys.path.append(parent)
        package = importlib.import_module(self.name)
        if self.folder not in map(Path, package.__path__):
            raise ConfigError(
                f"example: received {str(self.folder)!r}, but Python imports {self.name} from "
                f"{next(iter(package.__path__))}; rename the folder"
            )
        return importlib.import_module(f"{self.name}.{name}")


def find_folder(name: str) -> Path:
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
        return find_folder("configs") / DEFAULT_CONFIG
    path = Path(argument)
    if path.exists() and not path.is_dir():
        return path
    shipped = {file.stem: file for file in sorted(find_folder("configs").glob("*.toml"))}
    name = argument.removeprefix("./").removeprefix("configs/").removesuffix(".toml")
    if name in shipped:
        return shipped[name]
    close = difflib.get_close_matches(name, shipped, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    received = "received a folder" if path.is_dir() else "no such file"
    raise ConfigError(
        f"{received}; {hint}expected the path of a job file, or the name of a shipped one: "
        f"{', '.join(shipped)}",
        source=argument,
    )


def find_example(name: str) -> Example:
    """Return an example: a shipped one by its name, or one of the user's by the path of its folder.

    Args:
        name: a path has a slash, as ``./my_example``.

    Raises:
        ConfigError: there is none.
    """
    if "/" in name:
        return _own_example(name)
    examples = find_folder("examples")
    names = sorted(path.parent.name for path in examples.glob(f"*/{SETTINGS}"))
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(
            f"example: received {name!r}; {hint}expected one of {', '.join(names)}, or the "
            "path of a folder, for example ./my_example"
        )
    return Example(name=name, folder=examples / name)


def _own_example(path: str) -> Example:
    folder = Path(path).expanduser().resolve()
    missing = [name for name in (SETTINGS, WORKLOAD) if not (folder / name).is_file()]
    if missing:
        raise ConfigError(
            f"example: received {path!r}, expected a folder with {SETTINGS} and {WORKLOAD}; "
            f"add {' and '.join(missing)}"
        )
    if not folder.name.isidentifier():
        raise ConfigError(
            f"example: received {path!r}, expected a folder name that Python can import; use "
            "only letters, digits and underscores"
        )
    return Example(name=folder.name, folder=folder)
