"""`tfps plan`: which server takes which variable of a job, before anything starts."""

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
from tfps.placement.forecast import Forecast
from tfps.placement.job_sizes import JobSizes

GIB = 1 << 30


@dataclass(frozen=True)
class JobPlan:
    """What a job will have where.

    Args:
        path: of its file.
        config: with defaults and overrides.
        workers: of the cluster.
        forecast: which server takes what.
        sizes: what its strategies depend on.
    """

    path: Path
    config: JobConfig
    workers: int
    forecast: Forecast
    sizes: JobSizes

    @property
    def memory_bytes_per_server(self) -> tuple[int, ...]:
        """What each server's process will need at least."""
        mode = mode_of(self.config.consistency)
        needed = self.forecast.memory_bytes_per_server(
            workers=self.workers, has_rounds=mode.backup_workers is not None
        )
        compression = compression_of(self.config.compression)
        kept = kept_bytes_per_server(self.forecast, compression, workers=self.workers)
        return tuple(map(sum, zip(needed, kept, strict=True)))

    def memory_problems(self, *, ps_memory_gib: float) -> list[str]:
        """Say which servers would run out of memory.

        Args:
            ps_memory_gib: of each server.
        """
        ways = "take more servers, or an optimizer with fewer slots"
        if self.config.compression.differences:
            ways += ", or leave compression.differences out"
        return [
            f"parameter server {server} needs {needed / GIB:.2f} GiB at least and has "
            f"{ps_memory_gib:g}: {ways}"
            for server, needed in enumerate(self.memory_bytes_per_server)
            if needed > ps_memory_gib * GIB
        ]

    def unused_rules(self) -> list[tuple[str, str]]:
        """Section and rule of what no variable follows; often a slip of the pen."""
        paths = [variable.path for variable in self.forecast.wanted if variable.beside is None]
        return [
            (section, rule)
            for section in ("partitioner", "placement")
            for rule in getattr(self.config, section).rules
            if not any(re.search(rule, path) for path in paths)
        ]


def plan_job(config_argument: str | None, overrides: Sequence[str] = ()) -> JobPlan:
    """Make a job's model without values, divide it, and ask the placement for each shard.

    Args:
        config_argument: path of the file, or name of a shipped one; None is the reference job.
        overrides: ``key=value`` each.

    Raises:
        ConfigError: everything that is wrong with the job, at once.
    """
    checked = check_job(config_argument, overrides)
    assert checked.forecast is not None
    config, workers, forecast = checked.config, checked.size.workers, checked.forecast
    period_steps = config.consistency.period_steps
    left_out_bytes = bytes_left_out(forecast, compression_of(config.compression))
    sizes = JobSizes.of(
        forecast, workers=workers, period_steps=period_steps, left_out_bytes=left_out_bytes
    )
    if keeps_tables_whole(config):
        forecast = forecast.with_whole_tables()
    return JobPlan(checked.path, config, workers, forecast, sizes)
