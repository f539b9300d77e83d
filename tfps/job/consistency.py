"""The consistency mode that a job file describes."""

from __future__ import annotations

from tfps.config.schema import OWN_OPTIMIZERS, ConsistencySection, JobConfig
from tfps.consistency.local_steps import LocalSteps
from tfps.consistency.mode import Mode
from tfps.consistency.modes import Asynchronous, BoundedStaleness, applies_each_gradient
from tfps.consistency.optimizer_limits import average_problem, together_problem
from tfps.consistency.synchronous import Synchronous
from tfps.units import counted


def mode_of(section: ConsistencySection) -> Mode:
    """Return the mode of ``[consistency]``."""
    warm_up = section.warm_up_steps
    if section.mode == "asynchronous":
        return Asynchronous(warm_up_steps=warm_up)
    if section.mode == "synchronous":
        return Synchronous(section.backup_workers, warm_up)
    if section.mode == "bounded_staleness":
        return BoundedStaleness(section.bound_steps, warm_up)
    return LocalSteps(
        section.period_steps,
        synchronous_periods=section.synchronous_periods,
        elasticity=section.elasticity,
        warm_up_steps=warm_up,
    )


def describe_mode(section: ConsistencySection) -> str:
    """Return a text with the mode of ``[consistency]`` and its settings, for titles.

    Example:

    >>> describe_mode(ConsistencySection(mode="synchronous", backup_workers=1))
    'synchronous, 1 backup worker'
    >>> describe_mode(ConsistencySection(mode="bounded_staleness"))
    'bounded staleness, at most 4 steps ahead'
    """
    backups, warm_up = section.backup_workers, section.warm_up_steps
    settings = {
        "asynchronous": {},
        "synchronous": {counted(backups, "backup worker"): backups > 0},
        "bounded_staleness": {f"at most {counted(section.bound_steps, 'step')} ahead": True},
        "local_steps": {
            f"periods of {counted(section.period_steps, 'step')}": True,
            "synchronous": section.synchronous_periods,
            f"elasticity {section.elasticity}": section.elasticity is not None,
        },
    }
    any_mode = {f"after {counted(warm_up, 'step')} of warm-up": warm_up > 0}
    texts = [text for text, applies in (settings[section.mode] | any_mode).items() if applies]
    return ", ".join([section.mode.replace("_", " "), *texts])


def keeps_tables_whole(config: JobConfig) -> bool:
    """Return whether workers get whole tables, as `tfps.runtime.program.tables` decides.

    They do if they keep parameters between exchanges.

    Example:

    >>> keeps_tables_whole(JobConfig(consistency=ConsistencySection(mode="local_steps")))
    True
    """
    section = config.consistency
    return section.mode == "local_steps" or section.warm_up_steps > 0


def consistency_problems(config: JobConfig) -> list[str]:
    """Return a sentence for each setting that the chosen mode cannot be combined with."""
    section, own = config.consistency, OWN_OPTIMIZERS.get(config.training.optimizer.name)
    problems = _local_problems(section)
    if own and not problems and not applies_each_gradient(mode_of(section)):
        problems.append(f"training.optimizer.name: {together_problem(own)}")
    local = section.mode == "local_steps" or section.warm_up_steps > 0
    if local and config.training.optimizer.arguments().get("use_ema"):
        problems.append(f"training.optimizer.use_ema: {average_problem()}")
    if section.backup_workers and section.mode != "synchronous":
        problems.append(
            f"consistency.backup_workers: received {section.backup_workers} with {section.mode}, "
            "expected 0; set consistency.mode to synchronous to use backup workers"
        )
    return problems


def _local_problems(section: ConsistencySection) -> list[str]:
    is_local = section.mode == "local_steps"
    problems = []
    if section.elasticity is not None and (section.synchronous_periods or not is_local):
        where = "synchronous_periods = true" if is_local else f"mode = {section.mode!r}"
        problems.append(
            f"consistency.elasticity: received {section.elasticity} with {where}, expected no "
            "value; remove it, or set consistency.mode to local_steps without synchronous_periods"
        )
    if section.synchronous_periods and not is_local:
        problems.append(
            f"consistency.synchronous_periods: received true with mode = {section.mode!r}, "
            "expected false; set consistency.mode to local_steps to use periods"
        )
    return problems
