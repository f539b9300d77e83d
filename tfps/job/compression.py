"""The codecs that a job file describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tfps.compression import ByPath, Cast, Codec, Delta, Identity, PushPull, Quantize, TopK
from tfps.config.schema import CompressionSection
from tfps.consistency.mode import Mode
from tfps.job.rule_problems import rule_problems
from tfps.strategy.codec_limits import codec_problems

# By the names of the job file; each reads its own keys of the section.
CODEC_MAKERS: Mapping[str, Callable[[CompressionSection], Codec]] = {
    "identity": lambda _: Identity(),
    "cast": lambda section: Cast(section.dtype),
    "quantize": lambda section: Quantize(section.bits),
    "top_k": lambda section: TopK(section.fraction),
}


def compression_of(section: CompressionSection) -> PushPull:
    """Return the codecs of ``[compression]``.

    Raises:
        ConfigError: a rule is not a regular expression.
    """
    least = section.minimum_bytes
    rules = {rule: CODEC_MAKERS[name](section) for rule, name in section.rules.items()}
    push, pull = (CODEC_MAKERS[name](section) for name in (section.codec, section.pull))
    if section.deltas and section.pull != "identity":
        pull = Delta(pull)
    return PushPull(
        push=ByPath(rules, otherwise=push, minimum_bytes=least) if rules or least else push,
        pull=ByPath({}, otherwise=pull, minimum_bytes=least) if least else pull,
    )


def compression_problems(section: CompressionSection, *, mode: Mode | None) -> list[str]:
    """Return a sentence for each rule that is no pattern, and each codec that the mode refuses.

    Args:
        section: ``[compression]``.
        mode: the job's mode; None if the mode itself is wrong.
    """
    problems = rule_problems(lambda: compression_of(section), section="compression")
    return problems if problems or mode is None else codec_problems(compression_of(section), mode)
