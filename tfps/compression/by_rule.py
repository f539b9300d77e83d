"""Another codec for some of the variables, by their paths and sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tfps.compression.codec import Codec, is_codec
from tfps.compression.identity import Identity
from tfps.errors import ConfigError

EXPECTED = "a codec, such as tfps.compression.TopK(0.01)"


class CodecChoice(NamedTuple):
    """The codec of a variable, and which variables have it for the same reason."""

    codec: Codec
    group: str


@dataclass(frozen=True)
class ByRule:
    """The first pattern that is found in a variable's path decides.

    For biases, norms and embeddings that are to go as they are, beside kernels that are not.

    Args:
        rules: a regular expression to a codec.
        otherwise: for variables in whose path no pattern is found; they go as they are when left
            out.
        minimum_bytes: a smaller variable goes as it is, whatever the rules say.

    Raises:
        ConfigError: no regular expressions, no codecs, or a size below 0.

    Example:

    >>> from tfps.compression.cast import Cast
    >>> from tfps.compression.top_k import TopK
    >>> codecs = ByRule({"embedding/": Cast()}, otherwise=TopK(0.01), minimum_bytes=4096)
    >>> codecs.choice_for("model/dense/kernel", size_bytes=100_000)
    CodecChoice(codec=TopK(fraction=0.01), group='otherwise')
    >>> codecs.choice_for("model/dense/bias", size_bytes=40)
    CodecChoice(codec=Identity(), group='minimum_bytes')
    """

    rules: Mapping[str, Codec]
    otherwise: Codec = field(default_factory=Identity)
    minimum_bytes: int = 0

    def __post_init__(self) -> None:
        problems = [p for rule in self.rules.items() for p in _rule_problems(*rule)]
        if not is_codec(self.otherwise):
            problems.append(f"otherwise: received {self.otherwise!r}, expected {EXPECTED}")
        if not isinstance(self.minimum_bytes, int) or self.minimum_bytes < 0:
            problems.append(f"minimum_bytes: received {self.minimum_bytes!r}, expected 0 or more")
        if problems:
            raise ConfigError(problems, source="ByRule")

    def choice_for(self, path: str, *, size_bytes: int) -> CodecChoice:
        """The codec of a variable, and the pattern that chose it.

        Args:
            path: of Keras, such as ``"mlp/dense/kernel"``.
            size_bytes: of the whole variable.
        """
        if size_bytes < self.minimum_bytes:
            return CodecChoice(Identity(), "minimum_bytes")
        found = (
            CodecChoice(codec, rule) for rule, codec in self.rules.items() if re.search(rule, path)
        )
        return next(found, CodecChoice(self.otherwise, "otherwise"))


def _rule_problems(rule: str, codec: Any) -> list[str]:
    problems = []
    try:
        re.compile(rule)
    except re.error as error:
        problems.append(f"{rule!r}: received no regular expression ({error}), expected one")
    if not is_codec(codec):
        problems.append(f"{rule!r}: received {codec!r}, expected {EXPECTED}")
    return problems
