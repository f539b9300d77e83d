"""`tfps plan`: shows which server takes which variable of a job, before anything starts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfps.config import JobConfig
from tfps.job.check import check_job
from tfps.job.coded_bytes import bytes_left_out, kept_bytes_per_server
from tfps.job.compression import compression_of
from tfps.job.consistency import keeps_tables_whole, mode_of
from tfps.job.fault_tolerance import goes_on_later
from tfps.placement.forecast import Forecast
from tfps.placement.job_sizes import JobSizes

GIB = 1 << 30


@dataclass(frozen=True)
class JobPlan:
    """The plan of a job: its variables on each server, and their memory.

    Args:
        path: the job's file.
        config: its configuration, with defaults and overrides.
        workers: the number of workers.
        forecast: which server takes which variable.
        sizes: the sizes on which the choice of a strategy depends.
    """

    path: Path
    config: JobConfig
    workers: int
    forecast: Forecast
    sizes: JobSizes

    @property
    def memory_bytes_per_server(self) -> tuple[int, ...]:
        """The least memory of each server's process."""
        mode = mode_of(self.config.consistency)
        needed = self.forecast.memory_bytes_per_server(
            workers=self.workers, has_rounds=mode.backup_workers is not None
        )
        compression = compression_of(self.config.compression)
        value_copies = kept_bytes_per_server(self.forecast, compression, workers=self.workers)
        return tuple(map(sum, zip(needed, value_copies, strict=True)))

    @property
    def checkpoint_bytes(self) -> int:
        """The size of a checkpoint of the run; 0 if it saves none to go on from."""
        return sum(self.forecast.bytes_per_server) if goes_on_later(self.config) else 0

    def memory_problems(self, *, ps_memory_gib: float) -> list[str]:
        """Return a sentence for each server that would run out of memory.

        Args:
            ps_memory_gib: the memory of each server.
        """
        ways = "add servers, or choose an optimizer with fewer slots"
        if any(variable.worker_copies for variable in self.forecast.variables):
            ways += ", or one without copies of the weights for each worker"
        if self.config.compression.deltas:
            ways += ", or remove compression.deltas"
        return [
            f"parameter server {server}: received {ps_memory_gib:g} GiB, expected at least "
            f"{needed / GIB:.2f} GiB; {ways}"
            for server, needed in enumerate(self.memory_bytes_per_server)
            if needed > ps_memory_gib * GIB
        ]

    def unused_rules(self) -> list[tuple[str, str]]:
        """Return section and pattern of each rule that matches no variable; often a typo."""
        paths = [variable.path for variable in self.forecast.variables if variable.owner is None]
        return [
            (section, rule)
            for section in ("partitioner", "placement")
            for rule in getattr(self.config, section).rules
            if not any(re.search(rule, path) for path in paths)
        ]


def plan_job(config_argument: str | None, overrides: Sequence[str] = ()) -> JobPlan:
    """Make a job's model without values, divide it, and place each shard.

    Args:
        config_argument: path of the file, or name of a shipped one; None is the reference job.
        overrides: ``key=value`` each.

    Raises:
        ConfigError: the job has mistakes; names all of them.
    """
    checked = check_job(config_argument, overrides)
    assert checked.forecast is not None
    config, workers, forecast = checked.config, checked.size.workers, checked.forecast
    period_steps = config.consistency.period_steps
    left_out_bytes = bytes_left_out(forecast, compression_of(config.compression))
    sizes = JobSizes.from_forecast(
        forecast, workers=workers, period_steps=period_steps, left_out_bytes=left_out_bytes
    )
    if keeps_tables_whole(config):
        forecast = forecast.with_whole_tables()
    return JobPlan(checked.path, config, workers, forecast, sizes)
