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
    """Import the private names of a package; names of missing optional features are left out.

    Args:
        package: a key of `private_places.PACKAGES`.

    Raises:
        ImportError: the version is outside of the tested ones, or names are missing; lists them
            for TensorFlow and Keras.
    """
    found, missing = _import_places(PACKAGES[package])
    modules = {name: value for name, value in found.items() if isinstance(value, ModuleType)}
    if missing or _find_missing_attributes(PACKAGES[package], modules) or not _is_tested(package):
        raise ImportError(_format_refusal())
    return found


def check_attributes() -> None:
    """Check that the attributes that tfps uses exist; before anything is patched.

    Raises:
        ImportError: attributes are missing; lists those of TensorFlow and Keras.
    """
    if any(
        _find_missing_attributes(package, _import_places(package)[0])
        for package in PACKAGES.values()
    ):
        raise ImportError(_format_refusal())


def get_version(package: str) -> str:
    """Return the version that is in use of a package, which need not be the installed one."""
    version = getattr(sys.modules.get(package), "__version__", None)
    return str(version or package_version(package) or "missing")


def _import_places(package: Package) -> tuple[dict[str, Any], list[str]]:
    """Return the objects by name, and the expected places of missing objects."""
    found, missing = {}, []
    for name, places in package.places.items():
        try:
            found[name] = _import_first(places)
        except LookupError:
            if name not in package.features:
                missing.append(" or ".join(place.replace(":", ".") for place in places))
    return found, missing


def _import_first(places: tuple[str, ...]) -> Any:
    for place in places:
        module, _, name = place.partition(":")
        try:
            value = importlib.import_module(module)
            return functools.reduce(getattr, name.split("."), value) if name else value
        except (ImportError, AttributeError):
            continue
    raise LookupError(places)


def _find_missing_attributes(package: Package, found: dict[str, Any]) -> list[str]:
    return [
        f"{_get_full_name(found[owner])}.{name}"
        for owner, names in package.attributes.items()
        if owner in found
        for name in names
        if not _has_attribute(found[owner], name)
    ]


def _get_full_name(owner: Any) -> str:
    if isinstance(owner, ModuleType):
        return owner.__name__
    return f"{owner.__module__}.{owner.__qualname__}"


def _has_attribute(owner: Any, name: str) -> bool:
    """Return whether an object has an attribute, or is a class whose methods set it."""
    first, _, rest = name.partition(".")
    if hasattr(owner, first):
        return not rest or _has_attribute(getattr(owner, first), rest)
    return isinstance(owner, type) and any(
        instruction.opname == "STORE_ATTR" and instruction.argval == first
        for kind in owner.__mro__
        for value in vars(kind).values()
        for code in _iter_code_objects(value)
        if first in code.co_names
        for instruction in dis.get_instructions(code)
    )


def _iter_code_objects(value: Any) -> Iterator[CodeType]:
    if isinstance(value, property):
        for accessor in (value.fget, value.fset):
            yield from _iter_code_objects(accessor)
    elif callable(value) and not isinstance(value, type):
        code = getattr(inspect.unwrap(value), "__code__", None)
        if code is not None:
            yield code


def _is_tested(package: str) -> bool:
    """Return whether a version lies in the range of the tested minor versions."""
    tested = [_parse_minor(version) for version in PACKAGES[package].tested]
    return tested[-1] <= _parse_minor(get_version(package)) <= tested[0]


def _parse_minor(version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _format_refusal() -> str:
    """Return an error message: the versions in use, the missing names, and what to install."""
    missing: list[str] = []
    commands: list[str] = []
    for name, package in PACKAGES.items():
        absent: list[str] = []
        if name in sys.modules:  # a server runs without Keras
            found, absent = _import_places(package)
            absent += _find_missing_attributes(package, found)
        missing += dict.fromkeys(absent)  # a class is an attribute of its module, too
        if absent or not _is_tested(name):
            commands.append(name)
    pair = [f"{package.title} {get_version(name)}" for name, package in PACKAGES.items()]
    ranges = [f"{package.title} {_format_range(package.tested)}" for package in PACKAGES.values()]
    absent_text = f" These private names are missing: {', '.join(missing)}." if missing else ""
    return (
        f"tfps received {' with '.join(pair)}; expected {' with '.join(ranges)}.{absent_text} "
        f"Install the nearest tested versions: {_format_pip_install(commands)}"
    )


def _format_range(tested: tuple[str, ...]) -> str:
    return " to ".join(dict.fromkeys([_format_minor(tested[-1]), _format_minor(tested[0])]))


def _format_minor(version: str) -> str:
    return ".".join(map(str, _parse_minor(version)))


def _format_pip_install(packages: list[str]) -> str:
    """Return a pip command that installs the nearest tested versions of some packages."""
    wanted, options = [], ""
    for name in packages:
        version, tested = get_version(name), PACKAGES[name].tested
        lowest, highest = _parse_minor(tested[-1]), _parse_minor(tested[0])
        minor = max(lowest, min(_parse_minor(version), highest))
        nearest = next(each for each in tested if _parse_minor(each) == minor)
        if version == nearest:  # pip would find nothing to do: its files were changed
            options = "--force-reinstall --no-deps "
        wanted.append(f"'{_choose_distribution(name)}=={nearest}'")
    return f"pip install {options}{' '.join(wanted)}"


def _choose_distribution(package: str) -> str:
    """Return the distribution of a package to install, the installed variant if there is one."""
    installed = metadata.packages_distributions().get(package, [])
    names = {name.replace("_", "-") for name in installed}
    return "tensorflow-cpu" if "tensorflow-cpu" in names else package
