"""Chooses codecs by the paths and sizes of variables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tfps.by_path import PathRules
from tfps.compression.codec import Codec, is_codec
from tfps.compression.identity import Identity

EXPECTED = "a codec, such as tfps.compression.TopK(0.01)"


class CodecChoice(NamedTuple):
    """The codec of a variable, and the rule that chose it."""

    codec: Codec
    group: str


@dataclass(frozen=True)
class ByPath(PathRules[Codec]):
    """Chooses a variable's codec by the first pattern that is found in its path.

    Use it to send biases, norms and embeddings without compression, and kernels with it.

    Args:
        rules: codecs by regular expression.
        otherwise: the codec of variables whose path matches no pattern; no compression when left
            out.
        minimum_bytes: smaller variables are not compressed, whatever the rules say.

    Raises:
        ConfigError: a pattern or a codec is invalid, or the size is below 0.

    Example:

    >>> from tfps.compression.cast import Cast
    >>> from tfps.compression.top_k import TopK
    >>> codecs = ByPath({"embedding/": Cast()}, otherwise=TopK(0.01), minimum_bytes=4096)
    >>> codecs.choice_for("model/dense/kernel", size_bytes=100_000)
    CodecChoice(codec=TopK(fraction=0.01), group='otherwise')
    >>> codecs.choice_for("model/dense/bias", size_bytes=40)
    CodecChoice(codec=Identity(), group='minimum_bytes')
    """

    otherwise: Codec = field(default_factory=Identity)
    minimum_bytes: int = 0

    def describe_expected(self, choice: Any, *, is_rule: bool) -> str:
        return "" if is_codec(choice) else EXPECTED

    def problems(self) -> list[str]:
        problems = super().problems()
        if not isinstance(self.minimum_bytes, int) or self.minimum_bytes < 0:
            problems.append(f"minimum_bytes: received {self.minimum_bytes!r}, expected 0 or more")
        return problems

    def choice_for(self, path: str, *, size_bytes: int) -> CodecChoice:
        """Return the codec of a variable, and the pattern that chose it.

        Args:
            path: the variable's Keras path, such as ``"mlp/dense/kernel"``.
            size_bytes: the size of the whole variable in bytes.

        Returns:
            A named tuple of the ``codec`` and the ``group``: the pattern, ``"otherwise"`` or
            ``"minimum_bytes"``.
        """
        if size_bytes < self.minimum_bytes:
            return CodecChoice(Identity(), "minimum_bytes")
        group, codec = self.found_in(path)
        return CodecChoice(codec, group)
