"""The codecs of both directions: of pushes to servers, and of pulls from them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from tfps.compression.by_path import EXPECTED, ByPath, CodecChoice
from tfps.compression.codec import Codec, is_codec
from tfps.compression.delta import is_delta
from tfps.compression.identity import Identity
from tfps.compression.memory import keeps_state
from tfps.errors import ConfigError, refuse

Codecs: TypeAlias = Codec | ByPath  # of one direction


@dataclass(frozen=True)
class PushPull:
    """The codecs of both directions; use it to compress parameters as well as gradients.

    Pass it as ``compression`` of a `tfps.ParameterServerStrategy`.

    Args:
        push: the codec of gradients, from workers to servers.
        pull: the codec of parameters, from servers to workers.

    Raises:
        ConfigError: a value is neither a codec nor a `ByPath`.

    Example:

    >>> from tfps.compression.top_k import TopK
    >>> PushPull(push=TopK(0.01))
    PushPull(push=TopK(fraction=0.01), pull=Identity())
    """

    push: Codecs = field(default_factory=Identity)
    pull: Codecs = field(default_factory=Identity)

    def __post_init__(self) -> None:
        problems = [
            f"{name}: received {codecs!r}, expected {EXPECTED}, or a ByPath"
            for name, codecs in (("push", self.push), ("pull", self.pull))
            if not _is_choice(codecs)
        ]
        refuse(problems, source="PushPull")


def resolve(compression: Any) -> PushPull:
    """Return a ``compression`` argument as a `PushPull`; a single codec is for gradients.

    Raises:
        ConfigError: it is not a codec, a `ByPath` or a `PushPull`.
    """
    if compression is None:
        return PushPull()
    if isinstance(compression, PushPull):
        return compression
    if _is_choice(compression):
        return PushPull(push=compression)
    raise ConfigError(
        f"compression: received {compression!r}, expected {EXPECTED}, a ByPath or a PushPull of "
        "tfps.compression, or None to send uncompressed gradients"
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


def without_deltas(compression: PushPull) -> PushPull:
    """Replace each `Delta` by `Identity`, for servers that keep no copies of workers.

    Example:

    >>> from tfps.compression.delta import Delta
    >>> from tfps.compression.top_k import TopK
    >>> without_deltas(PushPull(push=TopK(0.1), pull=Delta(TopK(0.1))))
    PushPull(push=TopK(fraction=0.1), pull=Identity())
    """
    pull = compression.pull
    if isinstance(pull, ByPath):
        rules = {rule: _replace_delta(codec) for rule, codec in pull.rules.items()}
        whole = replace(pull, rules=rules, otherwise=_replace_delta(pull.otherwise))
        return replace(compression, pull=whole)
    return replace(compression, pull=_replace_delta(pull))


def _replace_delta(codec: Codec) -> Codec:
    return Identity() if is_delta(codec) else codec


def any_keeps_residuals(codecs: Codecs) -> bool:
    """Return whether workers keep residuals for some of the codecs."""
    return any(map(keeps_state, all_codecs(codecs)))


def _is_choice(value: Any) -> bool:
    return isinstance(value, ByPath) or is_codec(value)
