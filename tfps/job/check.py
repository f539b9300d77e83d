"""Checks a job without starting it; all commands use the same checks."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tfps.cluster import ClusterSpec, timeout_from_environment
from tfps.cluster.timeout import CHIEF_TIMEOUT_S, DEFAULT_CHIEF_TIMEOUT_S
from tfps.config import JobConfig, bundle, load, locate_problems, salvage
from tfps.config.schema import OptimizerSection
from tfps.errors import ConfigError, DataError
from tfps.folder import folder_problem
from tfps.job import optimizer
from tfps.job.compression import compression_of, compression_problems
from tfps.job.consistency import consistency_problems, mode_of
from tfps.job.fault_tolerance import folder_problems, recovery_problems, restarts_problems
from tfps.job.forecast import make_forecast
from tfps.job.named_job import naming_problems, room_problems
from tfps.job.partitioner import partitioner_of
from tfps.job.placement import placement_of
from tfps.job.rule_problems import rule_problems
from tfps.job.unfinished_run import run_problems
from tfps.job.workload import workload_of
from tfps.launch.data_plane import data_port
from tfps.placement.forecast import Forecast
from tfps.strategy.cluster_size import ClusterSize, size_problems
from tfps.strategy.environment import environment_errors
from tfps.strategy.mirror_limits import mirror_problems
from tfps.transport.setting import wanted_transport

Result = TypeVar("Result")
FindProblems = Callable[[OptimizerSection], list[str]]
# The environment variables of the job's tasks, beside those that the strategy reads.
ENVIRONMENT_READERS: tuple[Callable[[], Any], ...] = (
    data_port,
    lambda: timeout_from_environment(CHIEF_TIMEOUT_S, default_s=DEFAULT_CHIEF_TIMEOUT_S),
)


@dataclass(frozen=True)
class CheckedJob:
    """Holds a job that has passed the checks.

    Args:
        path: the job's file.
        config: its configuration, with defaults and overrides.
        size: the size of the cluster that it will have.
        spec: the cluster of `TF_CONFIG`; None if that is not set.
        data: a text about the data; empty if they were not checked.
        forecast: which server takes which variable; None if no model was made.
    """

    path: Path
    config: JobConfig
    size: ClusterSize
    spec: ClusterSpec | None
    data: str = ""
    forecast: Forecast | None = None


def check_settings(config_argument: str | None, overrides: Sequence[str] = ()) -> CheckedJob:
    """Check a job's file, its overrides, `TF_CONFIG` and the other environment variables.

    It is what every task needs; it checks neither data nor model.

    Args:
        config_argument: path of the file, or name of a shipped one; None is the reference job.
        overrides: ``key=value`` each.

    Raises:
        ConfigError: the job has mistakes; names all of them.
    """
    return _Check(config_argument, overrides).result()


def check_start(
    config_argument: str | None,
    overrides: Sequence[str] = (),
    *,
    argument_problems: FindProblems = optimizer.argument_problems,
) -> CheckedJob:
    """Check the same as `check_settings`, the data files and the output folder.

    A chief calls it before it starts anything; it raises the same errors.

    Args:
        config_argument: path of the file, or name of a shipped one; None is the reference job.
        overrides: ``key=value`` each.
        argument_problems: returns what is wrong with the optimizer's arguments, which Keras knows.
    """
    check = _Check(config_argument, overrides, argument_problems=argument_problems)
    check.check_data()
    check.check_output()
    return check.result()


def check_job(config_argument: str | None, overrides: Sequence[str] = ()) -> CheckedJob:
    """Check the same as `check_start`, and make the model to find what a strategy would refuse.

    Starts, downloads and writes nothing; arguments and errors are the same. `tfps train` leaves the
    model to the strategy, which has the same messages: once TensorFlow has started, a strategy
    cannot set its number of threads.
    """
    check = _Check(config_argument, overrides)
    check.check_data()
    check.check_output()
    check.make_model()
    return check.result()


def cluster_of_environment() -> ClusterSpec | None:
    """Return the cluster of `TF_CONFIG`, or None if that is not set.

    Raises:
        ConfigError: `TF_CONFIG` is invalid.
    """
    return ClusterSpec.from_environment() if os.environ.get("TF_CONFIG", "").strip() else None


class _Check:
    """Collects mistakes; goes on to check the parts that are valid."""

    def __init__(
        self,
        config_argument: str | None,
        overrides: Sequence[str],
        *,
        argument_problems: FindProblems = optimizer.argument_problems,
    ) -> None:
        self._argument_problems = argument_problems
        self._errors: list[ConfigError] = []
        self._overrides = overrides
        self._data = ""
        self._forecast: Forecast | None = None
        self._spec = self._try_to_read(cluster_of_environment)
        has_cluster = not self._errors
        path = self._try_to_read(lambda: bundle.config_path(config_argument))
        if path is None:
            raise ConfigError.joined(reversed(self._errors))
        self._path: Path = path
        self._try_to_read(lambda: load(path, overrides))
        self._config, self._wrong_keys = salvage(path, overrides)
        own = self._config.cluster
        size = ClusterSize.from_spec(self._spec) if self._spec else ClusterSize(own.workers, own.ps)
        self._size = size if has_cluster else None
        problems = self._value_problems()
        self._add_problems(problems)
        self._has_right_values = not self._wrong_keys and not problems
        self._errors += environment_errors()
        for read in (*ENVIRONMENT_READERS, lambda: wanted_transport(self._config.transport.name)):
            self._try_to_read(read)

    def check_data(self) -> None:
        config = self._config
        if self._is_wrong("example", "data.source", "data.path"):
            return
        try:
            self._data = workload_of(config.example).check_data(config)
        except ConfigError as error:
            self._add_problems(error.problems)
        except DataError as error:
            key = "data.path" if config.data.path else "data.source"
            self._add_problems([f"{key}: {line}" for line in str(error).splitlines()])

    def check_output(self) -> None:
        if not self._is_wrong("training.output"):
            problem = folder_problem(Path(self._config.training.output), name="training.output")
            self._add_problems([problem] if problem else [])
        if not self._is_wrong("recovery"):
            problems = folder_problems(self._config)
            if not problems and not self._wrong_keys:
                problems = self._try_to_read(lambda: run_problems(self._config)) or []
            self._add_problems(problems)

    def make_model(self) -> None:
        """Make the model, unless a value is wrong, which would make a different one."""
        size = self._size
        if size is not None and self._has_right_values:
            try:
                self._forecast = make_forecast(self._config, size=size)
            except ConfigError as error:
                self._add_problems(error.problems)

    def result(self) -> CheckedJob:
        if self._errors or self._size is None:
            raise ConfigError.joined(self._errors)
        return CheckedJob(
            path=self._path,
            config=self._config,
            size=self._size,
            spec=self._spec,
            data=self._data,
            forecast=self._forecast,
        )

    def _value_problems(self) -> list[str]:
        """Return the values that cannot be combined, or do not fit the cluster."""
        config, problems = self._config, []
        mode = placement = None
        if not self._is_wrong("training.optimizer"):
            problems += self._argument_problems(config.training.optimizer)
        if not self._is_wrong("consistency", "training.optimizer"):
            mistakes = consistency_problems(config)
            mode = None if mistakes else mode_of(config.consistency)
            problems += mistakes
        if not self._is_wrong("partitioner"):
            problems += rule_problems(
                lambda: partitioner_of(config.partitioner), section="partitioner"
            )
        if not self._is_wrong("placement"):
            mistakes = rule_problems(lambda: placement_of(config.placement), section="placement")
            placement = None if mistakes else placement_of(config.placement)
            problems += mistakes
        if not self._is_wrong("compression"):
            found = compression_problems(config.compression, mode=mode)
            problems += found
            if mode is not None and placement is not None and not found:
                problems += mirror_problems(
                    placement, mode=mode, compression=compression_of(config.compression)
                )
        if not self._is_wrong("recovery"):
            problems += recovery_problems(config)
        if not self._is_wrong("job"):
            problems += naming_problems(config)
        if self._size is not None and not self._is_wrong("cluster"):
            problems += room_problems(config, workers=self._size.workers)
        if self._size is not None and not self._is_wrong("cluster", "restarts"):
            problems += restarts_problems(config, workers=self._size.workers)
        if self._size is not None and not self._is_wrong("cluster"):
            problems += size_problems(mode=mode, placement=placement, size=self._size)
        return problems

    def _is_wrong(self, *keys: str) -> bool:
        """Return whether one of these keys, a key below it, or a section around it, was wrong."""
        return any(
            key == path or key.startswith(f"{path}.") or path.startswith(f"{key}.") or not path
            for path in self._wrong_keys
            for key in keys
        )

    def _add_problems(self, problems: Sequence[str]) -> None:
        if problems:
            error = locate_problems(problems, path=self._path, overrides=self._overrides)
            self._errors.append(error)

    def _try_to_read(self, read: Callable[[], Result]) -> Result | None:
        try:
            return read()
        except ConfigError as error:
            self._errors.append(error)
            return None
