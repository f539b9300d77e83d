"""Finds the names of `private_places` in the installed versions, and refuses versions without them.

All that is missing is reported in one error, when tfps is imported and before anything is patched.
"""

from __future__ import annotations

import dis
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from types import CodeType, ModuleType
from typing import Any

from tfps.bridge.private_places import PACKAGES, Package
from tfps.package_versions import package_version


def find_names(package: str) -> dict[str, Any]:
    """Return what the names of a package stand for; a name of a missing feature is left out.

    Args:
        package: a key of `private_places.PACKAGES`.

    Raises:
        ImportError: the version is outside of the tested ones, or names are missing; lists them
            for TensorFlow and Keras.
    """
    found, missing = _look_up(PACKAGES[package])
    modules = {name: value for name, value in found.items() if isinstance(value, ModuleType)}
    if missing or _missing_attributes(PACKAGES[package], modules) or not _is_tested(package):
        raise ImportError(_refusal())
    return found


def check_attributes() -> None:
    """Check that the attributes that tfps uses exist; before anything is patched.

    Raises:
        ImportError: attributes are missing; lists those of TensorFlow and Keras.
    """
    if any(_missing_attributes(package, _look_up(package)[0]) for package in PACKAGES.values()):
        raise ImportError(_refusal())


def version_of(package: str) -> str:
    """Return the version that is in use of a package, which need not be the installed one."""
    version = getattr(sys.modules.get(package), "__version__", None)
    return str(version or package_version(package) or "missing")


def _look_up(package: Package) -> tuple[dict[str, Any], list[str]]:
    """Return the objects by name, and the newest places of those that are missing."""
    found, missing = {}, []
    for name, places in package.places.items():
        try:
            found[name] = _first(places)
        except LookupError:
            if name not in package.features:
                missing.append(" or ".join(place.replace(":", ".") for place in places))
    return found, missing


def _first(places: tuple[str, ...]) -> Any:
    for place in places:
        module, _, name = place.partition(":")
        try:
            value = importlib.import_module(module)
            return functools.reduce(getattr, name.split("."), value) if name else value
        except (ImportError, AttributeError):
            continue
    raise LookupError(places)


def _missing_attributes(package: Package, found: dict[str, Any]) -> list[str]:
    return [
        f"{_full_name(found[owner])}.{name}"
        for owner, names in package.attributes.items()
        if owner in found
        for name in names
        if not _has(found[owner], name)
    ]


def _full_name(owner: Any) -> str:
    if isinstance(owner, ModuleType):
        return owner.__name__
    return f"{owner.__module__}.{owner.__qualname__}"


def _has(owner: Any, name: str) -> bool:
    """Return whether an object has an attribute, or a class's methods set it on instances."""
    first, _, rest = name.partition(".")
    if hasattr(owner, first):
        return not rest or _has(getattr(owner, first), rest)
    return isinstance(owner, type) and any(
        instruction.opname == "STORE_ATTR" and instruction.argval == first
        for kind in owner.__mro__
        for value in vars(kind).values()
        for code in _codes(value)
        if first in code.co_names
        for instruction in dis.get_instructions(code)
    )


def _codes(value: Any) -> Iterator[CodeType]:
    if isinstance(value, property):
        for accessor in (value.fget, value.fset):
            yield from _codes(accessor)
    elif callable(value) and not isinstance(value, type):
        code = getattr(inspect.unwrap(value), "__code__", None)
        if code is not None:
            yield code


def _is_tested(package: str) -> bool:
    """Return whether a version lies in the range of the tested minor versions."""
    tested = [_minor(version) for version in PACKAGES[package].tested]
    return tested[-1] <= _minor(version_of(package)) <= tested[0]


def _minor(version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _refusal() -> str:
    """Return the one message for the versions in use: what is missing, and what to install."""
    missing: list[str] = []
    commands: list[str] = []
    for name, package in PACKAGES.items():
        absent: list[str] = []
        if name in sys.modules:  # a server runs without Keras
            found, absent = _look_up(package)
            absent += _missing_attributes(package, found)
        missing += dict.fromkeys(absent)  # a class is an attribute of its module, too
        if absent or not _is_tested(name):
            commands.append(name)
    pair = [f"{package.title} {version_of(name)}" for name, package in PACKAGES.items()]
    ranges = [f"{package.title} {_range(package.tested)}" for package in PACKAGES.values()]
    absent_text = f" These private names are missing: {', '.join(missing)}." if missing else ""
    return (
        f"tfps received {' with '.join(pair)}; expected {' with '.join(ranges)}.{absent_text} "
        f"Install the nearest tested versions: {_pip_install(commands)}"
    )


def _range(tested: tuple[str, ...]) -> str:
    return " to ".join(dict.fromkeys([_text(tested[-1]), _text(tested[0])]))


def _text(version: str) -> str:
    return ".".join(map(str, _minor(version)))


def _pip_install(packages: list[str]) -> str:
    """Return one command for the nearest tested versions of some packages."""
    wanted, options = [], ""
    for name in packages:
        version, tested = version_of(name), PACKAGES[name].tested
        lowest, highest = _minor(tested[-1]), _minor(tested[0])
        minor = max(lowest, min(_minor(version), highest))
        nearest = next(each for each in tested if _minor(each) == minor)
        if version == nearest:  # pip would find nothing to do: its files were changed
            options = "--force-reinstall --no-deps "
        wanted.append(f"'{_distribution(name)}=={nearest}'")
    return f"pip install {options}{' '.join(wanted)}"


def _distribution(package: str) -> str:
    """Return what to install: a second distribution would overwrite the files of the first."""
    installed = metadata.packages_distributions().get(package, [])
    names = {name.replace("_", "-") for name in installed}
    return "tensorflow-cpu" if "tensorflow-cpu" in names else package
