"""The base class of partitioners with whole numbers as arguments."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tfps.errors import refuse


@dataclass(frozen=True)
class Counts:
    """Checks that all fields are whole numbers from 1; or None, if that is a field's default.

    Raises:
        ConfigError: fields are invalid; names all of them.
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
