"""One job file: its schema, its overrides, and a report of all its mistakes together."""

from tfps.config.job_file import load, locate_problems, parse, salvage, to_toml
from tfps.config.schema import OPTIMIZERS, JobConfig

__all__ = ["OPTIMIZERS", "JobConfig", "locate_problems", "load", "parse", "salvage", "to_toml"]
