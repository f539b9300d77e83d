"""The codecs that a job file describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tfps.compression import (
    Both,
    ByRule,
    Cast,
    Codec,
    DeepGradientCompression,
    Difference,
    Identity,
    PowerSGD,
    Quantize,
    TopK,
)
from tfps.compression.codec import corrects_momentum
from tfps.compression.directions import all_codecs
from tfps.config.schema import CompressionSection, StalenessSection, TrainingSection
from tfps.consistency.mode import Mode
from tfps.errors import ConfigError
from tfps.strategy.codec_limits import codec_problems

# By the names of the job file; each takes from the section what concerns it.
CODEC_MAKERS: Mapping[str, Callable[[CompressionSection], Codec]] = {
    "identity": lambda _: Identity(),
    "cast": lambda section: Cast(section.dtype),
    "quantize": lambda section: Quantize(section.bits),
    "top_k": lambda section: TopK(section.fraction),
    "deep_gradient_compression": lambda section: DeepGradientCompression(
        section.fraction, section.warm_up_steps, section.momentum, section.clip_norm
    ),
    "power_sgd": lambda section: PowerSGD(section.rank),
}


def compression_of(section: CompressionSection) -> Both:
    """Return the codecs of ``[compression]``.

    Raises:
        ConfigError: a rule is no regular expression.
    """
    least = section.minimum_bytes
    rules = {rule: CODEC_MAKERS[name](section) for rule, name in section.rules.items()}
    up, down = (CODEC_MAKERS[name](section) for name in (section.codec, section.down))
    if section.differences and section.down != "identity":
        down = Difference(down)
    return Both(
        up=ByRule(rules, otherwise=up, minimum_bytes=least) if rules or least else up,
        down=ByRule({}, otherwise=down, minimum_bytes=least) if least else down,
    )


def compression_problems(
    section: CompressionSection, *, mode: Mode | None, training: TrainingSection | None = None
) -> list[str]:
    """Return a sentence for each rule that is no pattern, and for what the job does not allow.

    Args:
        section: of the job file.
        mode: of the job; None: another sentence says what is wrong with it.
        training: of the job; None: likewise.
    """
    try:
        compression = compression_of(section)
    except ConfigError as error:
        return [f"compression.rules: {problem}" for problem in error.problems]
    problems = [] if mode is None else codec_problems(compression, mode)
    corrects = any(map(corrects_momentum, all_codecs(compression.up)))
    if training is not None and corrects and not _is_plain_descent(training):
        problems.append(
            f"training.optimizer: received {_in_words(training)} with {compression.up!r}, expected "
            'name = "sgd" without momentum, and no correction or discount of stale gradients: the '
            "codec has the momentum, on the workers"
        )
    return problems


def _is_plain_descent(training: TrainingSection) -> bool:
    optimizer, staleness = training.optimizer, training.staleness
    has_momentum = bool(optimizer.arguments().get("momentum"))
    corrects = staleness != StalenessSection()
    return optimizer.name == "sgd" and not has_momentum and not corrects


def _in_words(training: TrainingSection) -> str:
    momentum = training.optimizer.arguments().get("momentum")
    text = f'name = "{training.optimizer.name}"'
    return f"{text}, momentum = {momentum}" if momentum else text
