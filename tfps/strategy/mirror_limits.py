"""Checks which settings a job may have whose workers train weights by all-reduce. Pure."""

from __future__ import annotations

from tfps.compression.directions import PushPull, all_codecs
from tfps.compression.identity import Identity
from tfps.consistency.mode import Mode
from tfps.consistency.synchronous import Synchronous
from tfps.placement.policy import Placement, mirrors_any

REMEDY = "or leave AllReduce() out of placement"


def mirror_problems(
    placement: Placement,
    *,
    mode: Mode,
    compression: PushPull,
    transport: str = "auto",
    keeps_servers: bool = False,
) -> list[str]:
    """Return a sentence for each setting that cannot be combined with `AllReduce`.

    Args:
        placement: the placement policy.
        mode: the consistency mode.
        compression: the codecs.
        transport: the transport that the user has asked for.
        keeps_servers: whether the job survives a lost server or chief, by checkpoints or a name.

    Example:

    >>> from tfps.placement import AllReduce
    >>> mirror_problems(AllReduce(), mode=Synchronous(), compression=PushPull())
    []
    """
    if not mirrors_any(placement):
        return []
    problems = []
    if mode != Synchronous():
        problems.append(
            f"consistency: received {mode!r} with placement={placement!r}, expected "
            f"tfps.Synchronous(), {REMEDY}"
        )
    codecs = [*all_codecs(compression.push), *all_codecs(compression.pull)]
    if not all(isinstance(codec, Identity) for codec in codecs):
        problems.append(
            f"compression: received {compression!r} with placement={placement!r}, expected None, "
            f"{REMEDY}"
        )
    if transport == "grpc":
        problems.append(
            f'transport: received "grpc" with placement={placement!r}, expected "auto" or '
            f'"direct", {REMEDY}'
        )
    if keeps_servers:
        problems.append(
            f"placement: received {placement!r} with the checkpoints of a tfps.FaultTolerance, or "
            "with the name of a job, which bring lost servers and chiefs back, expected neither; "
            f"leave these out and save with tfps.callbacks.Checkpoint, {REMEDY}"
        )
    return problems
