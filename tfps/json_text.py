"""Parses JSON into values of given types, and names the fields that are wrong. Pure."""

from __future__ import annotations

import functools
from typing import Any

from pydantic import TypeAdapter, ValidationError


def parse_json(kind: Any, text: str | bytes) -> Any:
    """Return the value of a type, such as a dataclass, that a JSON text describes.

    Args:
        kind: the type. No value of another type is converted: a text of digits is no number.
        text: the JSON text.

    Raises:
        ValueError: the text describes another value; the message names each wrong field.

    Example:

    >>> parse_json(tuple[int, ...], "[1, 2]")
    (1, 2)
    """
    try:
        return _make_adapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, each['loc'])) or 'text'}: received {each['input']!r:.100}, "
            f"{each['msg'].lower().replace('input should be', 'expected')}"
            for each in error.errors(include_url=False)
        ]
        raise ValueError("; ".join(problems)) from error


@functools.cache
def _make_adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
