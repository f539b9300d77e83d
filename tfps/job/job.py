"""One training run, from a checked configuration to the files in its output folder."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfps.config import JobConfig
from tfps.errors import ConfigError
from tfps.folder import make_folder
from tfps.job.consistency import describe_mode
from tfps.job.epochs import TrainingRecord
from tfps.job.inputs import Inputs
from tfps.job.result import RECORDED_PACKAGES, Result, describe_host, format_now
from tfps.job.unfinished_run import CONFIG_FILE, begin_run, end_run
from tfps.job.workload import workload_of
from tfps.package_versions import package_versions
from tfps.terminal import announce, status
from tfps.units import counted, format_seconds

if TYPE_CHECKING:
    from tfps.strategy.parameter_server import ParameterServerStrategy

RESULT_FILES = (CONFIG_FILE, "result.json")  # beside the model and the pictures

Connect = Callable[[], AbstractContextManager[Any]]


def load_inputs(config: JobConfig, *, say: Callable[[str], None]) -> Inputs:
    """Load and check the data of a job, before anything else starts.

    Args:
        config: the job's configuration.
        say: receives messages about the data for the user.

    Raises:
        ConfigError: the job's example does not exist.
        DataError: files are missing, corrupt or truncated; names them.
    """
    workload = workload_of(config.example)
    return workload.load(config, say=lambda text: say(_wrap_to_terminal(text)))


def run_job(
    config: JobConfig, inputs: Inputs, *, connect: Connect, say: Callable[[str], None]
) -> Result:
    """Train, test and write the results; return the numbers.

    Args:
        config: the job's configuration.
        inputs: its data.
        connect: returns a context manager that yields the strategy.
        say: receives the lines for the terminal.

    Raises:
        ConfigError: the output folder cannot be written to, or the learning-rate schedule needs
            a number of steps that the data do not tell.
    """
    steps_per_epoch = inputs.steps_per_epoch(config.data.batch_size)
    steps = None if steps_per_epoch is None else config.training.epochs * steps_per_epoch
    _check_inputs(config, inputs, steps=steps)
    output = prepare_output(config, say=say)
    workload = workload_of(config.example)
    with connect() as strategy:
        with status("building the model"):
            model = build_model(config, steps=steps, scope=strategy.scope())
        say(f"model    {config.model.name}, {model.count_params():,} parameters")
        from tfps.job.fit_loop import train_with_fit  # it imports Keras

        started, started_at = time.monotonic(), format_now()
        training = train_with_fit(strategy, model, inputs, config)
        train_seconds = time.monotonic() - started
        stats = strategy.stats()
        took = format_seconds(train_seconds)
        say(f"Trained in {took}{_step_time_text(training)}{_staleness_text(stats)}; testing ...")
        with status("testing"):
            measured = workload.test(model, inputs)
            announce("saving the model")
            # Not earlier: the results of an earlier run survive one that fails.
            (output / "result.json").unlink(missing_ok=True)
            saved = save_model(model, output, saved_as=config.training.saved)
        cluster = _cluster_fields(strategy, stats)
    result = Result(
        title=workload.title(config),
        example=config.example,
        started_at=started_at,
        mode=config.consistency.mode,
        mode_in_words=describe_mode(config.consistency),
        cluster=cluster,
        host=describe_host(),
        test=measured,
        train_seconds=train_seconds,
        examples_seen=stats.examples_seen,
        steps_per_s=training.steps_per_s,
        pull_seconds=stats.pull_seconds,
        push_seconds=stats.push_seconds,
        update_seconds=stats.update_seconds,
        encode_seconds=stats.encode_seconds,
        decode_seconds=stats.decode_seconds,
        gradient_staleness_updates=stats.gradient_staleness_updates,
        gradients_dropped=stats.gradients_dropped,
        traffic=stats.traffic,
        worker_lives=stats.worker_lives,
        history=training.epochs,
        data_source=inputs.source,
        package_versions=package_versions(RECORDED_PACKAGES),
    )
    with status("drawing the plots"):
        from tfps.job.figures import draw_all, pictures_of

        written = json.loads(result.as_json())
        draw_all(written, output)
        pictures = list(pictures_of(workload))
    result.write(output / "result.json")
    end_run(config)
    rate = "" if result.steps_per_s is None else f", {result.steps_per_s:.0f} steps/s"
    epochs = counted(config.training.epochs, "epoch")
    say(f"{workload.last_line(written)} after {epochs}{rate}")
    say(f"In {output}: {', '.join([saved, *pictures, *RESULT_FILES])}")
    return result


def build_model(config: JobConfig, *, steps: int | None, scope: AbstractContextManager[Any]) -> Any:
    """Make and compile the job's model in the scope of a strategy.

    Args:
        config: the job's configuration.
        steps: the number of steps of the whole training, for the learning-rate schedule; None if
            it is not known beforehand.
        scope: the scope of the strategy whose servers keep the weights.
    """
    import keras

    from tfps.job.optimizer import build_optimizer

    keras.utils.set_random_seed(config.training.seed)
    with scope:
        workload = workload_of(config.example)
        model = workload.build(config)
        model.compile(
            optimizer=build_optimizer(config.training, steps=steps),
            **workload.compile_arguments(),
            steps_per_execution=config.training.steps_per_execution,
        )
    return model


def save_model(model: Any, output: Path, *, saved_as: str) -> str:
    """Save a trained model; returns the name of its file or folder.

    Args:
        model: the trained model.
        output: the folder of the results.
        saved_as: the value of `training.saved`.
    """
    if saved_as == "keras":
        model.save(output / "model.keras")
        return "model.keras"
    import tfps
    from tfps.checkpoint import KeepLatest

    manager = tfps.CheckpointManager(model, output / "model", keep=KeepLatest(1))
    manager.save(background=False)
    manager.close()
    return "model/"


def prepare_output(config: JobConfig, *, say: Callable[[str], None]) -> Path:
    """Make the output folder; report what becomes of an earlier run in it.

    Args:
        config: the job's configuration, with the folder.
        say: receives the line about it.

    Raises:
        ConfigError: the folder cannot be written to.
    """
    output = make_folder(Path(config.training.output), name="training.output")
    note = ""
    if any((output / name).exists() for name in RESULT_FILES):
        note = " (replaces the results of an earlier run)"
    if begin_run(config):
        note = " (goes on with an unfinished run; --overwrite begins anew)"
    say(f"output   {output}{note}")
    return output


def _check_inputs(config: JobConfig, inputs: Inputs, *, steps: int | None) -> None:
    if config.training.learning_rate_schedule == "cosine" and steps is None:
        raise ConfigError(
            "training.learning_rate_schedule: received 'cosine', which needs the number of "
            f"steps, but {inputs.source} has none; set it to 'constant'"
        )


def _cluster_fields(strategy: ParameterServerStrategy, stats: Any) -> dict[str, Any]:
    tasks = list(strategy.cluster.tasks("chief", "worker", "ps"))
    return {
        "workers": sum(task_type == "worker" for task_type, _, _ in tasks),
        "ps": sum(task_type == "ps" for task_type, _, _ in tasks),
        "tasks": {f"{task_type} {index}": address for task_type, index, address in tasks},
        "transports": stats.transports,
    }


def _step_time_text(training: TrainingRecord) -> str:
    """Return a text with the duration of the steps; the rest is start and validation."""
    if training.step_seconds is None:
        return ""
    seconds = format_seconds(training.step_seconds)
    return f" ({counted(training.steps, 'step')} in {seconds})"


def _staleness_text(stats: Any) -> str:
    """Return a text with the mean staleness of gradients; empty if it was not counted."""
    counts = stats.gradient_staleness_updates or {}
    gradients = sum(counts.values())
    if not gradients:
        return ""
    mean = sum(updates * count for updates, count in counts.items()) / gradients
    return f" with a mean gradient staleness of {mean:.2f} updates"


def _wrap_to_terminal(text: str) -> str:
    """Wrap a text to the width of the terminal; one line if there is no terminal."""
    if not sys.stdout.isatty():
        return text
    return textwrap.fill(text, shutil.get_terminal_size().columns - 1)
