"""``--set key=value``: one key of the job file, changed on the command line."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from tfps.errors import ConfigError

SOURCE = "--set"  # what messages call an override
# What a value that is meant as TOML starts with; everything else may be a bare word.
TOML_OPENERS = ("[", "{", '"', "'")


def parse_override(text: str) -> tuple[tuple[str, ...], Any]:
    """Split one override into the path of its key and its value.

    The value has TOML's syntax; a bare word that is no TOML value counts as a string.

    Args:
        text: what follows ``--set``.

    Raises:
        ConfigError: there is no key, no ``=``, or the value is broken TOML.

    Example:

    >>> parse_override("training.epochs=3"), parse_override("model.name=mlp")
    ((('training', 'epochs'), 3), (('model', 'name'), 'mlp'))
    """
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise ConfigError(
            f"received {text!r}, expected key=value, for example training.epochs=3", source=SOURCE
        )
    return path, _parse_value(value.strip(), text=text)


def apply_overrides(
    values: Mapping[str, Any], overrides: Sequence[str]
) -> tuple[dict[str, Any], list[ConfigError]]:
    """Return a copy of a job file's values with the overrides, and a sentence for each wrong one.

    The last override of a key wins; a wrong one is left out, so that the mistakes of the others
    can be reported with it.

    Args:
        values: the parsed job file.
        overrides: as given after ``--set``.

    Example:

    >>> apply_overrides({"data": {"batch_size": 64}}, ["data.batch_size=128"])
    ({'data': {'batch_size': 128}}, [])
    """
    result = copy.deepcopy(dict(values))
    errors: list[ConfigError] = []
    for text in overrides:
        try:
            path, value = parse_override(text)
            _set_value(result, path, value)
        except ConfigError as error:
            errors.append(error)
    return result, errors


def source_of_problem(
    problem: str, own: Mapping[str, Any], overrides: Sequence[str], *, file: str
) -> str:
    """Return what a mistake was read from: the file, ``--set``, or both.

    Args:
        problem: what is wrong, starting with the path of its key.
        own: the values of the job file, without the overrides.
        overrides: as given after ``--set``.
        file: the file's name.

    Example:

    >>> source_of_problem("training.epochs: received 0", {}, ["training.epochs=0"], file="job.toml")
    '--set'
    """
    key = tuple(problem.partition(":")[0].split("."))
    paths = [
        tuple(part.strip() for part in text.partition("=")[0].split(".")) for text in overrides
    ]
    if any(path == key[: len(path)] for path in paths):
        return SOURCE
    if any(key == path[: len(key)] for path in paths):  # of a table that is not all its own
        return f"{file} with {SOURCE}" if _get_value(own, key) else SOURCE
    return file


def _get_value(values: Mapping[str, Any], key: tuple[str, ...]) -> Any:
    value: Any = values
    for part in key:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _parse_value(value: str, *, text: str) -> Any:
    try:
        document = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError as error:
        if not value or value.startswith(TOML_OPENERS):
            raise ConfigError(
                f"received {text!r}, expected a number, true or false, a word, a string in "
                f"quotes or an array such as [32, 64]; the value is invalid TOML ({error})",
                source=SOURCE,
            ) from error
        return value
    if set(document) != {"value"}:  # a line break in the value started another key
        raise ConfigError(f"received {text!r}, expected one value on one line", source=SOURCE)
    return document["value"]


def _set_value(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    section = values
    for depth, part in enumerate(path[:-1], start=1):
        inner = section.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(
                f"{'.'.join(path)}: received {inner!r} as {'.'.join(path[:depth])}, expected a "
                "section",
                source=SOURCE,
            )
        section = inner
    section[path[-1]] = value
