"""Checks the arguments of the pytest plugin's markers, which `tfps.pytest_plugin` reads."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from tfps.cluster.validation import check_counts
from tfps.errors import ConfigError

DEFAULTS: dict[str, dict[str, Any]] = {
    "tfps_cluster": {"workers": 2, "ps": 1, "environment": None},
    "tfps_one_process": {"workers": 2, "ps": 1},
}


def options_of(name: str, *arguments: object, **options: object) -> dict[str, Any]:
    """Return the arguments of a marker, with defaults for missing ones.

    Args:
        name: the name of the marker.
        arguments: positional arguments, all of which are errors.
        options: keyword arguments.

    Raises:
        ConfigError: lists every wrong argument.

    Example:

    >>> options_of("tfps_one_process", workers=3)
    {'workers': 3, 'ps': 1}
    >>> options_of("tfps_one_process", servers=3)
    Traceback (most recent call last):
    tfps.errors.ConfigError: @pytest.mark.tfps_one_process(servers=3): servers: unknown argument; \
expected workers and ps, as in @pytest.mark.tfps_one_process(workers=2, ps=1)
    """
    defaults = DEFAULTS[name]
    problems = _problems_of_names(name, arguments, options)
    try:
        check_counts(name, **{key: options[key] for key in ("workers", "ps") if key in options})
    except ConfigError as error:
        problems += error.problems
    environment = options.get("environment")
    if "environment" in defaults and environment is not None and not _is_environment(environment):
        problems.append(
            f"environment: received {environment!r}, expected a dict of strings, for example "
            '{"TFPS_TRANSPORT": "grpc"}'
        )
    if problems:
        received = [*map(repr, arguments), *(f"{key}={value!r}" for key, value in options.items())]
        raise ConfigError(problems, source=f"@pytest.mark.{name}({', '.join(received)})")
    return {**defaults, **options}


def _problems_of_names(
    name: str, arguments: tuple[object, ...], options: Mapping[str, object]
) -> list[str]:
    *others, last = DEFAULTS[name]
    expected = f"expected {', '.join(others)} and {last}"
    example = f"as in @pytest.mark.{name}(workers=2, ps=1)"
    problems = [f"received {value!r} without a name, {expected}, {example}" for value in arguments]
    for key in options:
        if key not in DEFAULTS[name]:
            close = difflib.get_close_matches(key, DEFAULTS[name], n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            problems.append(f"{key}: unknown argument; {hint}{expected}, {example}")
    return problems


def _is_environment(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(text, str) for pair in value.items() for text in pair
    )
