"""Numbers that partitioners are made with."""

from __future__ import annotations

from tfps.errors import ConfigError


def refuse_no_counts(*, optional: frozenset[str] = frozenset(), **numbers: int | None) -> None:
    """Refuse what is no whole number from 1.

    Args:
        optional: names that may be None.
        numbers: by the name of the argument.

    Raises:
        ConfigError: there is one; it names them all.

    Example:

    >>> refuse_no_counts(optional=frozenset({"shards"}), shards=None)
    """
    problems = [
        f"{name}: received {number!r}, expected a whole number from 1"
        f"{', or None' if name in optional else ''}"
        for name, number in numbers.items()
        if not (number is None and name in optional)
        and (not isinstance(number, int) or isinstance(number, bool) or number < 1)
    ]
    if problems:
        raise ConfigError(problems)
