"""One job file: its schema, its overrides, and every mistake in it at once."""

from tfps.config.job_file import load, locate_problems, parse, salvage, to_toml
from tfps.config.schema import OPTIMIZERS, JobConfig

__all__ = ["OPTIMIZERS", "JobConfig", "locate_problems", "load", "parse", "salvage", "to_toml"]
