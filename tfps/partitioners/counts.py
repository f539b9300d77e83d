"""Partitioners that are made with whole numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tfps.errors import refuse


@dataclass(frozen=True)
class Counts:
    """The base of partitioners whose fields are whole numbers from 1; by default None: or None.

    Raises:
        ConfigError: a field is something else; it names them all.
    """

    def __post_init__(self) -> None:
        problems = []
        for field in fields(self):
            number, is_optional = getattr(self, field.name), field.default is None
            is_count = isinstance(number, int) and not isinstance(number, bool) and number >= 1
            if not is_count and not (number is None and is_optional):
                expected = "a whole number from 1" + (", or None" if is_optional else "")
                problems.append(f"{field.name}: received {number!r}, expected {expected}")
        refuse(problems)
