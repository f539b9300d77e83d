"""Finds the names of `private_places` in the installed versions, and refuses versions without them.

All that is missing is reported in one error, when tfps is imported and before anything is patched.
"""

from __future__ import annotations

import dis
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Iterator
from importlib import metadata
from types import CodeType, ModuleType
from typing import Any

from tfps.bridge.private_places import PACKAGES, Package
from tfps.errors import ConfigError
from tfps.package_versions import package_version
from tfps.tested_versions import parse_minor

UNTESTED_VARIABLE = "TFPS_UNTESTED"


def find_names(package: str) -> dict[str, Any]:
    """Import the private names of a package; names of missing optional features are left out.

    Args:
        package: a key of `private_places.PACKAGES`.

    Raises:
        ImportError: the version is older than the tested ones, or names are missing; lists them
            for TensorFlow and Keras.
        ConfigError: ``TFPS_UNTESTED`` has another value than 1.
    """
    objects, missing = _import_names(PACKAGES[package])
    modules = {name: value for name, value in objects.items() if isinstance(value, ModuleType)}
    is_refused = _find_missing_attributes(PACKAGES[package], modules) or _is_too_old(package)
    if missing or (is_refused and not untested_is_allowed()):
        raise ImportError(format_refusal())
    return objects


def check_attributes() -> None:
    """Check that the attributes that tfps uses exist; called before anything is patched.

    Raises:
        ImportError: attributes are missing; lists those of TensorFlow and Keras.
    """
    is_refused = any(
        _find_missing_attributes(each, _import_names(each)[0]) for each in PACKAGES.values()
    )
    if is_refused and not untested_is_allowed():
        raise ImportError(format_refusal())


def untested_is_allowed() -> bool:
    """Return whether ``TFPS_UNTESTED`` is 1, so that untested versions are not refused.

    Raises:
        ConfigError: it has another value.
    """
    value = os.environ.get(UNTESTED_VARIABLE)
    if value in (None, "1"):
        return value == "1"
    raise ConfigError(
        f"{UNTESTED_VARIABLE}: received {value!r}, expected '1'; remove it to refuse versions that "
        "fail the check, or set it to 1 to run with them"
    )


def find_newer_packages() -> list[str]:
    """Return the packages whose minor version is newer than all tested ones."""
    return [
        name
        for name, package in PACKAGES.items()
        if parse_minor(get_version(name)) > parse_minor(package.tested[0])
    ]


def find_changed_parameters() -> list[str]:
    """Return a phrase for each function whose first parameters are not those that tfps passes."""
    changed = []
    for package in PACKAGES.values():
        objects, _ = _import_names(package)
        for place, expected in package.parameters.items():
            owner, _, attribute = place.partition(".")
            if owner not in objects:
                continue  # a feature that this version lacks
            function = getattr(objects[owner], attribute)
            received = tuple(inspect.signature(function).parameters)[: len(expected)]
            if received != expected:
                name = f"{_get_full_name(objects[owner])}.{attribute}"
                changed.append(f"{name}({', '.join(received)}), expected ({', '.join(expected)})")
    return changed


def get_version(package: str) -> str:
    """Return the version of a package that is in use, which need not be the installed one."""
    version = getattr(sys.modules.get(package), "__version__", None)
    return str(version or package_version(package) or "missing")


def _import_names(package: Package) -> tuple[dict[str, Any], list[str]]:
    """Return the objects by name, and the expected places of missing objects."""
    objects, missing = {}, []
    for name, paths in package.paths.items():
        try:
            objects[name] = _import_first(paths)
        except LookupError:
            if name not in package.features:
                missing.append(" or ".join(path.replace(":", ".") for path in paths))
    return objects, missing


def _import_first(paths: tuple[str, ...]) -> Any:
    for path in paths:
        module, _, name = path.partition(":")
        try:
            value = importlib.import_module(module)
            return functools.reduce(getattr, name.split("."), value) if name else value
        except (ImportError, AttributeError):
            continue
    raise LookupError(paths)


def _find_missing_attributes(package: Package, objects: dict[str, Any]) -> list[str]:
    return [
        f"{_get_full_name(objects[owner])}.{name}"
        for owner, names in package.attributes.items()
        if owner in objects
        for name in names
        if not _has_attribute(objects[owner], name)
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


def _is_too_old(package: str) -> bool:
    """Return whether a minor version is older than all tested ones."""
    return parse_minor(get_version(package)) < parse_minor(PACKAGES[package].tested[-1])


def format_refusal(failed: str = "") -> str:
    """Return an error message: the versions in use, the missing names, and what to install.

    Args:
        failed: a sentence that says which check has failed, if another one has.
    """
    newer = find_newer_packages()
    missing: list[str] = []
    commands: list[str] = []
    for name, package in PACKAGES.items():
        absent: list[str] = []
        if name in sys.modules:  # a server runs without Keras
            objects, absent = _import_names(package)
            absent += _find_missing_attributes(package, objects)
        missing += dict.fromkeys(absent)  # a class is an attribute of its module, too
        if absent or _is_too_old(name) or name in newer:
            commands.append(name)
    pair = [f"{package.title} {get_version(name)}" for name, package in PACKAGES.items()]
    ranges = [f"{package.title} {_format_range(package.tested)}" for package in PACKAGES.values()]
    absent_text = f" These private names are missing: {', '.join(missing)}." if missing else ""
    failed_text = f" {failed}" if failed else ""
    return (
        f"tfps received {' with '.join(pair)}; expected {' with '.join(ranges)}.{absent_text}"
        f"{failed_text} "
        f"Install the nearest tested versions: {_format_pip_install(commands)}"
    )


def _format_range(tested: tuple[str, ...]) -> str:
    return " to ".join(dict.fromkeys([_format_minor(tested[-1]), _format_minor(tested[0])]))


def _format_minor(version: str) -> str:
    return ".".join(map(str, parse_minor(version)))


def _format_pip_install(packages: list[str]) -> str:
    """Return a pip command that installs the nearest tested versions of some packages."""
    wanted, options = [], ""
    for name in packages:
        version, tested = get_version(name), PACKAGES[name].tested
        lowest, highest = parse_minor(tested[-1]), parse_minor(tested[0])
        minor = max(lowest, min(parse_minor(version), highest))
        nearest = next(each for each in tested if parse_minor(each) == minor)
        if version == nearest:  # pip would find nothing to do: its files were changed
            options = "--force-reinstall --no-deps "
        wanted.append(f"'{_choose_distribution(name)}=={nearest}'")
    return f"pip install {options}{' '.join(wanted)}"


def _choose_distribution(package: str) -> str:
    """Return the distribution of a package to install, the installed variant if there is one."""
    installed = metadata.packages_distributions().get(package, [])
    names = {name.replace("_", "-") for name in installed}
    return "tensorflow-cpu" if "tensorflow-cpu" in names else package
