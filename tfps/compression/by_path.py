"""Another codec for some of the variables, by their paths and sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tfps import by_path
from tfps.compression.codec import Codec, is_codec
from tfps.compression.identity import Identity

EXPECTED = "a codec, such as tfps.compression.TopK(0.01)"


class CodecChoice(NamedTuple):
    """The codec of a variable, and which variables have it for the same reason."""

    codec: Codec
    group: str


@dataclass(frozen=True)
class ByPath(by_path.ByPath[Codec]):
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
    >>> codecs = ByPath({"embedding/": Cast()}, otherwise=TopK(0.01), minimum_bytes=4096)
    >>> codecs.choice_for("model/dense/kernel", size_bytes=100_000)
    CodecChoice(codec=TopK(fraction=0.01), group='otherwise')
    >>> codecs.choice_for("model/dense/bias", size_bytes=40)
    CodecChoice(codec=Identity(), group='minimum_bytes')
    """

    otherwise: Codec = field(default_factory=Identity)
    minimum_bytes: int = 0

    def expected(self, choice: Any, *, is_rule: bool) -> str:
        return "" if is_codec(choice) else EXPECTED

    def problems(self) -> list[str]:
        problems = super().problems()
        if not isinstance(self.minimum_bytes, int) or self.minimum_bytes < 0:
            problems.append(f"minimum_bytes: received {self.minimum_bytes!r}, expected 0 or more")
        return problems

    def choice_for(self, path: str, *, size_bytes: int) -> CodecChoice:
        """Return the codec of a variable, and the pattern that chose it.

        Args:
            path: of Keras, such as ``"mlp/dense/kernel"``.
            size_bytes: of the whole variable.
        """
        if size_bytes < self.minimum_bytes:
            return CodecChoice(Identity(), "minimum_bytes")
        group, codec = self.found_in(path)
        return CodecChoice(codec, group)
