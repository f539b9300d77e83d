"""`tfps train`: this process as one task of a cluster, or as the chief of a local one."""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tfps import terminal
from tfps.cluster import (
    SUPERVISED,
    ClusterSpec,
    announce_finished,
    prepare_process,
    wait_for_tasks,
)
from tfps.config import JobConfig
from tfps.errors import ClusterError, ConfigError
from tfps.job.check import check_settings, check_start
from tfps.job.consistency import mode_of
from tfps.job.job import load_inputs, run_job
from tfps.job.partitioner import partitioner_of
from tfps.job.placement import placement_of
from tfps.job.restarts import restarts_of
from tfps.launch import LocalCluster, serve
from tfps.launch.data_plane import DATA_PORT
from tfps.launch.log_folder import TaskLog
from tfps.launch.noise import install_noise_filter
from tfps.launch.parent import end_with_parent
from tfps.launch.stop_signals import end_on_signals
from tfps.recovery.events import EVENTS_FILE, EventLog
from tfps.terminal import status
from tfps.units import count_tasks, counted


def train(config_argument: str | None, overrides: Sequence[str] = ()) -> int:
    """Train the job of a configuration file; return this process's exit status.

    With `TF_CONFIG` set, play that task's role: a worker and a parameter server serve until the
    chief says how the job ended, the chief trains. Without it, start a cluster of the configured
    size on this machine and be its chief.

    Args:
        config_argument: path of the file, or name of a shipped one; None is the reference job.
        overrides: ``key=value`` each.

    Raises:
        ConfigError: the file, the overrides or `TF_CONFIG` are wrong.
        DataError: data files are missing, corrupt or truncated.
        ClusterError: the cluster did not come up.
    """
    supervised = bool(end_with_parent())
    if not os.environ.get("TF_CONFIG", "").strip():
        end_on_signals()
        prepare_process("chief")
        config = check_start(config_argument, overrides).config
        inputs = load_inputs(config, say=say)
        say(f"data     {inputs.source}: {inputs.sizes()}")
        run_job(config, inputs, connect=lambda: _local_strategy(config), say=say)
        return 0
    spec = ClusterSpec.from_environment()
    assert spec.task_type is not None
    if spec.task_type not in ("worker", "ps"):  # which end at once when they serve
        speaks = spec.task_type == "chief" and not supervised
        end_on_signals(last_words=partial(announce_finished, spec) if speaks else None)
    prepare_process(spec.task_type)
    if spec.task_type == "evaluator":
        raise ConfigError(
            "task.type: received 'evaluator', which has no part in `tfps train`; expected chief, "
            "worker or ps (an evaluator runs a script of its own: tfps run SCRIPT)",
            source="TF_CONFIG",
        )
    if spec.task_type == "ps":
        port = check_settings(config_argument, overrides).config.transport.data_port
        if port:
            os.environ.setdefault(DATA_PORT, str(port))
    if spec.task_type in ("worker", "ps"):
        return serve(spec)
    return _train_as_chief(spec, config_argument, overrides, supervised=supervised)


def say(text: str) -> None:
    """Write a line for the user."""
    print(text, flush=True)


def _train_as_chief(
    spec: ClusterSpec, config_argument: str | None, overrides: Sequence[str], *, supervised: bool
) -> int:
    exit_status = 1
    if not supervised:
        # Also after a mistake in the configuration: the other tasks must not wait for this one.
        atexit.register(lambda: announce_finished(spec, exit_status))
        os.environ[SUPERVISED] = "1"  # the strategy leaves the message to us
    config = check_start(config_argument, overrides).config
    inputs = load_inputs(config, say=say)
    say(f"data     {inputs.source}: {inputs.sizes()}")
    log = TaskLog(spec)
    atexit.register(lambda: log.end(exit_status))
    install_noise_filter(log.path)
    run_job(config, inputs, connect=lambda: _cluster_strategy(config, spec), say=say)
    exit_status = 0
    return exit_status


@contextlib.contextmanager
def _local_strategy(config: JobConfig) -> Iterator[Any]:
    """Give a strategy over processes of this machine, which end with the context."""
    logs = Path(config.training.output) / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    install_noise_filter(logs / "chief-0.log")
    size = config.cluster
    say(
        f"cluster  1 chief, {counted(size.workers, 'worker')}, "
        f"{counted(size.ps, 'parameter server')} on this machine; logs in {logs}"
    )
    with contextlib.ExitStack() as stack:
        with status(f"starting {count_tasks(workers=size.workers, ps=size.ps)}"):
            # Not waiting at once: this process imports TensorFlow while the tasks do.
            cluster = stack.enter_context(
                LocalCluster(
                    workers=size.workers,
                    ps=size.ps,
                    log_dir=logs,
                    wait=False,
                    restarts=restarts_of(config.restarts),
                )
            )
            cluster.keeper.say = terminal.say
            cluster.keeper.events = EventLog(logs.parent / EVENTS_FILE)
            resolver = cluster.cluster_resolver

            def check() -> None:
                for failure in cluster.failures():
                    raise failure

            wait_for_tasks(cluster.spec, timeout_s=size.connect_timeout_s, report=say, check=check)
            cluster.keeper.mark_started()
            stack.enter_context(_lost_tasks_in_short(cluster))
            strategy = stack.enter_context(_strategy(config, resolver))
        status_of_job = 1
        try:
            yield strategy
            status_of_job = 0
        finally:
            if cluster.keeper.ended is None:
                cluster.keeper.record("job_ended", status=status_of_job)


@contextlib.contextmanager
def _cluster_strategy(config: JobConfig, spec: ClusterSpec) -> Iterator[Any]:
    """Give a strategy over the tasks of `TF_CONFIG`."""
    say(f"cluster  of TF_CONFIG:\n{spec}")
    with contextlib.ExitStack() as stack:
        with status("waiting for the tasks"):
            wait_for_tasks(spec, timeout_s=config.cluster.connect_timeout_s, report=say)
            stack.enter_context(_lost_tasks_in_short())
            strategy = stack.enter_context(_strategy(config, spec.tf_resolver()))
        yield strategy


@contextlib.contextmanager
def _lost_tasks_in_short(cluster: LocalCluster | None = None) -> Iterator[None]:
    """Raise `ClusterError` where the job ends since a task is lost, which is no mistake in code.

    Args:
        cluster: knows how its tasks ended.

    Raises:
        ClusterError: the status and the last lines of what ended, as far as they are known.
    """
    try:
        yield
    except Exception as error:
        import tensorflow as tf

        from tfps.bridge.closure_error import is_task_failure

        if cluster is not None and (end := cluster.keeper.ended):
            raise ClusterError(f"the job cannot go on: {end.reason}.") from error
        failures = [] if cluster is None else cluster.failures()
        is_lost = isinstance(error, tf.errors.UnavailableError) or is_task_failure(error)
        if is_lost or (failures and isinstance(error, tf.errors.OpError)):
            told = [str(failure) for failure in failures] or [f"a task is lost: {error}"]
            raise ClusterError("\n".join(["the job cannot go on.", *told])) from error
        for failure in failures:
            say(str(failure))
        raise


@contextlib.contextmanager
def _strategy(config: JobConfig, resolver: Any) -> Iterator[Any]:
    import tfps

    strategy = tfps.ParameterServerStrategy(
        resolver,
        partitioner_of(config.partitioner),
        placement=placement_of(config.placement),
        consistency=mode_of(config.consistency),
        transport=config.transport.carrier,
        restarts=restarts_of(config.restarts),
    )
    try:
        yield strategy
    finally:
        strategy.close()
