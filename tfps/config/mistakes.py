"""Pydantic's errors as sentences: the key, what was received and what is allowed."""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

KIND_TEXTS = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "a string",
    "object": "a section",
}
LIMIT_TEXTS = {
    "minimum": "at least {:g}",
    "exclusiveMinimum": "above {:g}",
    "exclusiveMaximum": "below {:g}",
    "maximum": "at most {:.0f}",
}


def describe_mistakes(error: ValidationError, *, schema: type[BaseModel]) -> list[str]:
    """Return one sentence per mistake, each starting with the path of its key.

    Args:
        error: what pydantic found.
        schema: the model that it validated.
    """
    items = error.errors(include_url=False)
    paths = [item["loc"] for item in items]
    # An array whose items are wrong counts as too short as well.
    return [
        _to_sentence(item, schema=schema)
        for item in items
        if not any(
            path != item["loc"] and path[: len(item["loc"])] == item["loc"] for path in paths
        )
    ]


def find_contradictions(values: Mapping[str, Any]) -> list[str]:
    """Return one sentence for each setting that pydantic accepts but that cannot be used.

    Args:
        values: the job file as parsed; it may have other mistakes.
    """
    problems = []
    optimizer = get_section(values, "training", "optimizer")
    if "learning_rate" in optimizer:
        problems.append(
            "training.optimizer.learning_rate: received "
            f"{format_value(optimizer['learning_rate'])}, expected no such key; set "
            "training.learning_rate instead"
        )
    problems += [
        f"training.optimizer.{name}: received {format_value(value)}, expected a string, a finite "
        "number, true or false, or an array or table of these; leave the argument out for "
        "Keras's default"
        for name, value in optimizer.items()
        if name != "name" and not _is_argument(value)
    ]
    return problems


def _is_argument(value: Any) -> bool:
    """Return whether Keras may be given a value, and the effective configuration can repeat it."""
    if isinstance(value, Mapping):
        return all(map(_is_argument, value.values()))
    if isinstance(value, list):
        return all(map(_is_argument, value))
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def get_section(values: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """Return a section of a job file that may have any mistake; empty where there is none.

    Example:

    >>> get_section({"data": {"path": "x"}}, "data"), get_section({"data": 3}, "data")
    ({'path': 'x'}, {})
    """
    section: Any = values
    for part in path:
        section = section.get(part, {}) if isinstance(section, Mapping) else {}
    return section if isinstance(section, Mapping) else {}


def _to_sentence(item: Any, *, schema: type[BaseModel]) -> str:
    path, kind = tuple(item["loc"]), item["type"]
    if kind == "extra_forbidden":
        return _unknown_key_text(path, schema=schema)
    key = ".".join(str(part) for part in path)
    expected = _describe_allowed(_find_schema_node(path, schema=schema))
    return f"{key}: received {format_value(item['input'])}, expected {expected}"


def _unknown_key_text(path: Sequence[int | str], *, schema: type[BaseModel]) -> str:
    *parents, key = path
    section = schema
    for part in parents:
        section = section.model_fields[str(part)].annotation  # type: ignore[assignment]
    known = list(section.model_fields)
    close = difflib.get_close_matches(str(key), known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    if not close and (home := _find_section(str(key), schema=schema)):
        hint = f"did you mean {home}? "
    name = ".".join(map(str, path))
    return f"{name}: unknown key; {hint}expected one of {', '.join(known)}"


def _find_section(key: str, *, schema: type[BaseModel], prefix: str = "") -> str | None:
    """Return the path of a key that some section of the schema has, or None."""
    for name, field in schema.model_fields.items():
        if name == key and prefix:
            return f"{prefix}{name}"
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            section = _find_section(key, schema=inner, prefix=f"{prefix}{name}.")
            if section:
                return section
    return None


def _find_schema_node(path: Sequence[int | str], *, schema: type[BaseModel]) -> dict[str, Any]:
    """Return the part of the JSON schema that a path leads to."""
    root = _json_schema(schema)
    node: dict[str, Any] = root
    for part in path:
        node = node["items"] if isinstance(part, int) else node["properties"][part]
        if "$ref" in node:
            node = root["$defs"][node["$ref"].rpartition("/")[2]]
    return node


@functools.cache
def _json_schema(schema: type[BaseModel]) -> dict[str, Any]:
    return schema.model_json_schema()


def _describe_allowed(node: dict[str, Any]) -> str:
    """Describe the values that a JSON schema allows.

    >>> item = {"type": "integer", "minimum": 1}
    >>> _describe_allowed({"type": "array", "minItems": 1, "items": item})
    'an array with at least 1 item, each a whole number, at least 1'
    """
    if "const" in node:  # an example allows one of several
        return repr(node["const"])
    if "enum" in node:
        return f"one of {', '.join(map(str, node['enum']))}"
    if "anyOf" in node:  # a setting that may be left out; TOML has no way to write nothing
        return _describe_allowed(node["anyOf"][0])
    if node["type"] == "array":
        least, most = node["minItems"], node.get("maxItems")
        number = f"{least} items" if least == most else f"at least {least} item"
        return f"an array with {number}, each {_describe_allowed(node['items'])}"
    kind = KIND_TEXTS[node["type"]]
    limits = [text.format(node[name]) for name, text in LIMIT_TEXTS.items() if name in node]
    if node.get("minLength"):
        limits = ["not empty"]
    return ", ".join([kind, " and ".join(limits)]) if limits else kind


def format_value(value: Any) -> str:
    """Return a value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
