"""Checks that codecs and the consistency mode can be combined. Pure: no TensorFlow."""

from __future__ import annotations

from tfps.compression.difference import is_difference
from tfps.compression.directions import Both, all_codecs, any_keeps_something
from tfps.compression.identity import Identity
from tfps.consistency.local_steps import LocalSteps
from tfps.consistency.mode import Mode


def codec_problems(compression: Both, mode: Mode) -> list[str]:
    """Return a sentence for each codec that cannot be used so, or not in this mode."""
    problems = []
    if any_keeps_something(compression.down):
        problems.append(
            f"compression: received down={compression.down!r}; expected codecs without a residual, "
            "such as tfps.compression.Cast() or Quantize(8), since parameters are coded anew each "
            "time; or code what has changed, with tfps.compression.Difference"
        )
    if any(map(is_difference, all_codecs(compression.up))):
        problems.append(
            f"compression: received up={compression.up!r}; expected a codec of gradients, such as "
            "tfps.compression.TopK(0.01), which keeps what it leaves out on the worker: only a "
            "server knows what each worker holds, so Difference is for down"
        )
    waits = mode.pipeline_steps or mode.backup_workers
    if waits and any(not isinstance(codec, Identity) for codec in all_codecs(compression.down)):
        problems.append(
            f"compression: received down={compression.down!r} with {mode!r}; expected Identity(): "
            "workers that are late, or ahead, get their parameters in another message too. Leave "
            "down out, or pipeline_steps and backup_workers"
        )
    if mode.pipeline_steps and any_keeps_something(compression.up):
        problems.append(
            f"compression: received {compression.up!r} with {mode!r}; expected a codec without a "
            "residual, such as tfps.compression.Quantize(8): a gradient is coded before it is "
            "known what became of the one before. Or leave pipeline_steps out"
        )
    is_coded = any(not isinstance(codec, Identity) for codec in all_codecs(compression.up))
    if isinstance(mode, LocalSteps) and mode.elasticity is not None and is_coded:
        problems.append(
            f"compression: received {compression.up!r} with {mode!r}; expected None: under elastic "
            "averaging workers send their parameters, and no gradients. Or leave elasticity out"
        )
    return problems
