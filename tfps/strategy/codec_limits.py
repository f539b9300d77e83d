"""Checks that codecs and the consistency mode can be combined. Pure: no TensorFlow."""

from __future__ import annotations

from tfps.compression.delta import is_delta
from tfps.compression.directions import PushPull, all_codecs, any_keeps_something
from tfps.compression.identity import Identity
from tfps.consistency.local_steps import LocalSteps
from tfps.consistency.mode import Mode


def codec_problems(compression: PushPull, mode: Mode) -> list[str]:
    """Return a sentence for each codec that cannot be used so, or not in this mode."""
    problems = []
    if any_keeps_something(compression.pull):
        problems.append(
            f"compression: received pull={compression.pull!r}; expected codecs without a residual, "
            "such as tfps.compression.Cast() or Quantize(8), since parameters are coded anew each "
            "time; or code what has changed, with tfps.compression.Delta"
        )
    if any(map(is_delta, all_codecs(compression.push))):
        problems.append(
            f"compression: received push={compression.push!r}; expected a codec of gradients, such "
            "as tfps.compression.TopK(0.01), which keeps what it leaves out on the worker: only a "
            "server knows what each worker holds, so Delta is for pull"
        )
    waits = mode.pipeline_steps or mode.backup_workers
    if waits and any(not isinstance(codec, Identity) for codec in all_codecs(compression.pull)):
        problems.append(
            f"compression: received pull={compression.pull!r} with {mode!r}; expected Identity(): "
            "workers that are late, or ahead, get their parameters in another message too. Leave "
            "pull out, or pipeline_steps and backup_workers"
        )
    if mode.pipeline_steps and any_keeps_something(compression.push):
        problems.append(
            f"compression: received {compression.push!r} with {mode!r}; expected a codec without a "
            "residual, such as tfps.compression.Quantize(8): a gradient is coded before it is "
            "known what became of the one before. Or leave pipeline_steps out"
        )
    is_coded = any(not isinstance(codec, Identity) for codec in all_codecs(compression.push))
    if isinstance(mode, LocalSteps) and mode.elasticity is not None and is_coded:
        problems.append(
            f"compression: received {compression.push!r} with {mode!r}; expected None: under "
            "elastic averaging workers send their parameters, and no gradients. Or "
            "leave elasticity out"
        )
    return problems
