"""The codecs of both directions: up from workers to servers, and down."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from tfps.compression.by_path import EXPECTED, ByPath, CodecChoice
from tfps.compression.codec import Codec, is_codec
from tfps.compression.difference import is_difference
from tfps.compression.identity import Identity
from tfps.compression.memory import keeps_something
from tfps.errors import ConfigError, refuse

Codecs: TypeAlias = Codec | ByPath  # of one direction


@dataclass(frozen=True)
class Both:
    """The codecs of both directions; use it to compress parameters as well as gradients.

    Args:
        up: the codec of gradients, from workers to servers.
        down: the codec of parameters, from servers to workers.

    Raises:
        ConfigError: a value is neither a codec nor a `ByPath`.

    Example:

    >>> from tfps.compression.top_k import TopK
    >>> Both(up=TopK(0.01))
    Both(up=TopK(fraction=0.01), down=Identity())
    """

    up: Codecs = field(default_factory=Identity)
    down: Codecs = field(default_factory=Identity)

    def __post_init__(self) -> None:
        problems = [
            f"{name}: received {codecs!r}, expected {EXPECTED}, or a ByPath"
            for name, codecs in (("up", self.up), ("down", self.down))
            if not _chooses(codecs)
        ]
        refuse(problems, source="Both")


def resolve(compression: Any) -> Both:
    """Return a ``compression`` argument as a `Both`; a single codec is for gradients.

    Raises:
        ConfigError: it is not a codec, a `ByPath` or a `Both`.
    """
    if compression is None:
        return Both()
    if isinstance(compression, Both):
        return compression
    if _chooses(compression):
        return Both(up=compression)
    raise ConfigError(
        f"compression: received {compression!r}, expected {EXPECTED}, a ByPath or a Both of "
        "tfps.compression, or None to send gradients as they are"
    )


def choice_for(codecs: Codecs, path: str, *, size_bytes: int) -> CodecChoice:
    """Return the codec of a variable; a single codec is for all variables."""
    if isinstance(codecs, ByPath):
        return codecs.choice_for(path, size_bytes=size_bytes)
    return CodecChoice(codecs, "all")


def all_codecs(codecs: Codecs) -> tuple[Codec, ...]:
    """Return all codecs that some variable may have."""
    if isinstance(codecs, ByPath):
        return (*codecs.rules.values(), codecs.otherwise)
    return (codecs,)


def without_differences(compression: Both) -> Both:
    """Replace each `Difference` by `Identity`, for servers that keep no copies of workers.

    Example:

    >>> from tfps.compression.difference import Difference
    >>> from tfps.compression.top_k import TopK
    >>> without_differences(Both(up=TopK(0.1), down=Difference(TopK(0.1))))
    Both(up=TopK(fraction=0.1), down=Identity())
    """
    down = compression.down
    if isinstance(down, ByPath):
        rules = {rule: _whole(codec) for rule, codec in down.rules.items()}
        whole = replace(down, rules=rules, otherwise=_whole(down.otherwise))
        return replace(compression, down=whole)
    return replace(compression, down=_whole(down))


def _whole(codec: Codec) -> Codec:
    return Identity() if is_difference(codec) else codec


def any_keeps_something(codecs: Codecs) -> bool:
    """Return whether workers keep residuals for some of the codecs."""
    return any(map(keeps_something, all_codecs(codecs)))


def _chooses(value: Any) -> bool:
    return isinstance(value, ByPath) or is_codec(value)
