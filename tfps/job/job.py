"""One training run, from a checked configuration to the files in its output folder."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfps.config import JobConfig, to_toml
from tfps.job import bundle
from tfps.job.consistency import mode_in_words
from tfps.job.epochs import TrainingRecord
from tfps.job.inputs import Inputs, split
from tfps.job.result import Result, host, now, package_versions
from tfps.launch.folder import make_folder
from tfps.terminal import announce, status
from tfps.units import counted, format_seconds

if TYPE_CHECKING:
    import numpy as np

EVALUATION_BATCH = 512  # examples; larger than a training batch, since no gradient is kept
RESULT_FILES = (
    "model.keras",
    "training_curves.png",
    "confusion_matrix.png",
    "staleness.png",
    "config.toml",
    "result.json",
)

Connect = Callable[[], AbstractContextManager[Any]]


def load_inputs(config: JobConfig, *, say: Callable[[str], None]) -> Inputs:
    """Load and check the data of a job; nothing else has started yet.

    Args:
        config: of the job.
        say: receives what the user should know about the data.

    Raises:
        ConfigError: the job's example does not exist.
        DataError: files are missing, corrupt or truncated, by name.
    """
    example = bundle.example(config.example)
    data = example.data.load(source=config.data.source, path=config.data.path, say=say)
    if data.notice:
        say(_in_whole_words(data.notice))
    return split(data, validation_fraction=config.data.validation_fraction)


def run_job(
    config: JobConfig, inputs: Inputs, *, connect: Connect, say: Callable[[str], None]
) -> Result:
    """Train, test and write the results; return the numbers.

    Args:
        config: of the job.
        inputs: its data.
        connect: gives the strategy, for as long as its context lasts.
        say: receives the lines for the terminal.

    Raises:
        ConfigError: the output folder cannot be written.
    """
    output = prepare_output(Path(config.training.output), say=say)
    steps = config.training.epochs * inputs.steps_per_epoch(config.data.batch_size)
    with connect() as strategy:
        with status("building the model"):
            model = build_model(config, steps=steps, strategy=strategy)
        say(f"model    {config.model.name}, {model.count_params():,} parameters")
        started, started_at = time.monotonic(), now()
        training = _train(strategy, model, inputs, config)
        train_seconds = time.monotonic() - started
        stats = strategy.stats()
        took = format_seconds(train_seconds)
        say(f"Trained in {took}{_of_which(training)}{_staleness(stats)}; testing ...")
        with status("testing"):
            loss, accuracy, matrix = test_model(model, inputs)
            announce("saving the model")
            # Only now: the results of an earlier run survive one that fails.
            (output / "result.json").unlink(missing_ok=True)
            model.save(output / "model.keras")
        cluster = _cluster(strategy, stats)
    example = bundle.example(config.example).model
    result = Result(
        title=f"{config.model.name.upper()} on {example.TITLE}",
        started_at=started_at,
        mode=config.consistency.mode,
        mode_in_words=mode_in_words(config.consistency),
        cluster=cluster,
        host=host(),
        test_accuracy=accuracy,
        test_loss=loss,
        train_seconds=train_seconds,
        examples_seen=training.examples_seen or stats.examples_seen,
        steps_per_s=training.steps_per_s,
        pull_seconds=_plain(stats.pull_seconds),
        push_seconds=_plain(stats.push_seconds),
        update_seconds=_plain(stats.update_seconds),
        gradient_staleness_updates=stats.gradient_staleness_updates,
        gradients_dropped=stats.gradients_dropped,
        incarnations=stats.incarnations,
        history=training.epochs,
        classes=example.CLASSES,
        confusion_matrix=matrix.tolist(),
        data_source=inputs.source,
        package_versions=package_versions(),
    )
    (output / "config.toml").write_text(to_toml(config))
    with status("drawing the pictures"):
        from tfps.job.figures import draw_all

        draw_all(json.loads(result.as_json()), output)
    result.write(output / "result.json")
    rate = "" if result.steps_per_s is None else f", {result.steps_per_s:.0f} steps/s"
    say(
        f"Test accuracy {accuracy:.4f} (loss {loss:.4f}) after "
        f"{counted(config.training.epochs, 'epoch')}{rate}"
    )
    say(f"In {output}: {', '.join(RESULT_FILES)}")
    return result


def build_model(config: JobConfig, *, steps: int, strategy: Any) -> Any:
    """Make and compile the job's model in the strategy's scope.

    Args:
        config: of the job.
        steps: of the whole training, over which the learning rate falls.
        strategy: whose parameter servers keep the weights.
    """
    import keras

    from tfps.job.optimizer import build_optimizer

    keras.utils.set_random_seed(config.training.seed)
    with strategy.scope():
        model = bundle.example(config.example).model.build(
            config.model.name, **config.model.sizes()
        )
        model.compile(
            optimizer=build_optimizer(config.training, steps=steps),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            steps_per_execution=config.training.steps_per_execution,
        )
    return model


def test_model(model: Any, inputs: Inputs) -> tuple[float, float, np.ndarray]:
    """Return loss, accuracy and confusion matrix (true by predicted class) on the test images.

    Args:
        model: trained.
        inputs: with the test images.
    """
    import numpy as np

    results = model.evaluate(
        inputs.x_test, inputs.y_test, batch_size=EVALUATION_BATCH, verbose=0, return_dict=True
    )
    logits = model.predict(inputs.x_test, batch_size=EVALUATION_BATCH, verbose=0)
    classes = logits.shape[1]
    pairs = inputs.y_test.astype(np.int64) * classes + logits.argmax(axis=1)
    matrix = np.bincount(pairs, minlength=classes**2).reshape(classes, classes)
    return float(results["loss"]), float(results["accuracy"]), matrix


def prepare_output(output: Path, *, say: Callable[[str], None]) -> Path:
    """Make the output folder; say so when results of an earlier run will be replaced.

    Args:
        output: the folder.
        say: receives the line about it.

    Raises:
        ConfigError: nothing can be written there.
    """
    make_folder(output, name="training.output")
    earlier = any((output / name).exists() for name in RESULT_FILES)
    say(f"output   {output}" + (" (will replace an earlier run's results)" if earlier else ""))
    return output


def _train(strategy: Any, model: Any, inputs: Inputs, config: JobConfig) -> TrainingRecord:
    if config.training.loop == "fit":
        from tfps.job.fit_loop import train_with_fit

        return train_with_fit(strategy, model, inputs, config)
    from tfps.job.custom_loop import train_with_custom_loop

    return train_with_custom_loop(strategy, model, inputs, config)


def _cluster(strategy: Any, stats: Any) -> dict[str, Any]:
    tasks = list(strategy.cluster.tasks("chief", "worker", "ps"))
    return {
        "workers": sum(task_type == "worker" for task_type, _, _ in tasks),
        "ps": sum(task_type == "ps" for task_type, _, _ in tasks),
        "tasks": {f"{task_type} {index}": address for task_type, index, address in tasks},
        "carriers": stats.carriers,
    }


def _of_which(training: TrainingRecord) -> str:
    """Say how long the steps took; the rest is start and validation."""
    if training.step_seconds is None:
        return ""
    seconds = format_seconds(training.step_seconds)
    return f" ({counted(training.steps, 'step')} in {seconds})"


def _staleness(stats: Any) -> str:
    """Say how old the parameters were on average, in updates; nothing where it was not counted."""
    counts = stats.gradient_staleness_updates or {}
    gradients = sum(counts.values())
    if not gradients:
        return ""
    mean = sum(updates * count for updates, count in counts.items()) / gradients
    return f" with a mean gradient staleness of {mean:.2f} updates"


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


def _in_whole_words(text: str) -> str:
    """Broken into lines of the terminal; one line elsewhere."""
    if not sys.stdout.isatty():
        return text
    return textwrap.fill(text, shutil.get_terminal_size().columns - 1)
