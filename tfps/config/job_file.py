"""Reads a job file with its overrides into a checked value, and writes that value."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from tfps.config.bundle import find_example
from tfps.config.mistakes import describe_mistakes, find_contradictions
from tfps.config.overrides import apply_overrides, source_of_problem
from tfps.config.schema import DEFAULT_EXAMPLE, JobConfig
from tfps.errors import ConfigError, refuse


def load(path: Path, overrides: Sequence[str] = ()) -> JobConfig:
    """Read a job file, apply the overrides and check every key.

    Args:
        path: a TOML file.
        overrides: ``key=value`` each, with TOML values; bare words are strings.

    Raises:
        ConfigError: the file cannot be read, or has mistakes; names all of them.
    """
    values, errors = apply_overrides(_read(path), overrides)
    config = None
    try:
        config = parse(values)
    except ConfigError as error:
        errors.append(locate_problems(error.problems, path=path, overrides=overrides))
    if config is None or errors:
        raise ConfigError.joined(errors)
    return config


def locate_problems(
    problems: Sequence[str], *, path: Path, overrides: Sequence[str]
) -> ConfigError:
    """Return an error in which each mistake is marked as of the file or of ``--set``.

    Args:
        problems: one sentence at least, each starting with the path of its key.
        path: the job file.
        overrides: see `load`.
    """
    try:
        own = _read(path)
    except ConfigError:
        own = {}
    return ConfigError.joined(
        ConfigError(problem, source=source_of_problem(problem, own, overrides, file=str(path)))
        for problem in problems
    )


def parse(values: Mapping[str, Any], *, source: str = "") -> JobConfig:
    """Check the values of a job file.

    Args:
        values: the values from the TOML parser.
        source: their name in error messages.

    Raises:
        ConfigError: values are invalid; names each key, the value and what is allowed.

    Example:

    >>> parse({"cluster": {"wrokers": 4}}, source="job.toml")
    Traceback (most recent call last):
    tfps.errors.ConfigError: job.toml: cluster.wrokers: unknown key; did you mean workers? \
expected one of workers, ps, max_workers, connect_timeout_s
    """
    schema, problems = _schema_of(values)
    problems += [*schema.contradictions(values), *find_contradictions(values)]
    try:
        config = schema.model_validate(values)
    except ValidationError as error:
        raise ConfigError(
            [*describe_mistakes(error, schema=schema), *problems], source=source
        ) from None
    refuse(problems, source=source)
    return config


def salvage(path: Path, overrides: Sequence[str] = ()) -> tuple[JobConfig, frozenset[str]]:
    """Read the valid values of a job file that may have mistakes, so that more can be checked.

    Args:
        path: a TOML file.
        overrides: see `load`.

    Returns:
        The configuration with defaults instead of wrong values, and the paths of the keys that
        were wrong; the empty path if the file cannot be read.
    """
    try:
        values, _ = apply_overrides(_read(path), overrides)
    except ConfigError:
        return JobConfig(), frozenset({""})
    schema, problems = _schema_of(values)
    wrong = {"example"} if problems else set()
    while True:
        try:
            return schema.model_validate(values), frozenset(wrong)
        except ValidationError as error:
            for item in error.errors():
                # A mistake inside an array is the array's.
                keys = [key for key in item["loc"] if isinstance(key, str)]
                wrong.add(".".join(keys))
                _remove(values, keys)


def to_toml(config: JobConfig) -> str:
    """Write a job's effective configuration as TOML, defaults and overrides included.

    Example:

    >>> parse(tomllib.loads(to_toml(parse({})))) == parse({})
    True
    """
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def _schema_of(values: Mapping[str, Any]) -> tuple[type[JobConfig], list[str]]:
    """Return the schema of a job file's example; if there is none, the default and the reasons."""
    name = values.get("example", DEFAULT_EXAMPLE)
    if not isinstance(name, str) or not name:
        name = DEFAULT_EXAMPLE  # validation describes what is wrong
    try:
        return find_example(name).job(), []
    except ConfigError as error:
        return JobConfig, list(error.problems)


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise ConfigError("no such file; check the path", source=str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"received invalid TOML: {error}", source=str(path)) from error
    except OSError as error:
        raise ConfigError(
            f"cannot read the file: {error.strerror}; check the path and its permissions",
            source=str(path),
        ) from error


def _remove(values: dict[str, Any], keys: Sequence[str]) -> None:
    *parents, last = keys
    for key in parents:
        values = values[key]
    values.pop(last, None)  # gone already if two items of one array are wrong
