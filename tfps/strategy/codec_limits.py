"""Checks that codecs and the consistency mode can be combined. Pure: no TensorFlow."""

from __future__ import annotations

from tfps.compression.delta import is_delta
from tfps.compression.directions import PushPull, all_codecs, any_keeps_residuals
from tfps.compression.identity import Identity
from tfps.consistency.local_steps import LocalSteps
from tfps.consistency.mode import Mode


def codec_problems(compression: PushPull, mode: Mode) -> list[str]:
    """Return a sentence for each codec that cannot be used in its direction, or in this mode."""
    problems = []
    if any_keeps_residuals(compression.pull):
        problems.append(
            f"compression: received pull={compression.pull!r}; expected codecs without a "
            "residual, such as tfps.compression.Cast() or Quantize(8), since each pull codes the "
            "parameters again; to code only changes use tfps.compression.Delta"
        )
    if any(map(is_delta, all_codecs(compression.push))):
        problems.append(
            f"compression: received push={compression.push!r}, expected a codec of gradients, "
            "such as tfps.compression.TopK(0.01); use Delta for pull only, since it needs the "
            "parameters that each worker holds"
        )
    if mode.backup_workers and any(
        not isinstance(codec, Identity) for codec in all_codecs(compression.pull)
    ):
        problems.append(
            f"compression: received pull={compression.pull!r} with {mode!r}, expected Identity(), "
            "since workers that are late also get parameters in other messages; leave pull or "
            "backup_workers out"
        )
    is_coded = any(not isinstance(codec, Identity) for codec in all_codecs(compression.push))
    if isinstance(mode, LocalSteps) and mode.elasticity is not None and is_coded:
        problems.append(
            f"compression: received push={compression.push!r} with {mode!r}, expected None, since "
            "under elastic averaging workers send parameters instead of gradients; leave "
            "compression or elasticity out"
        )
    return problems
