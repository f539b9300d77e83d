"""One training run, from a checked configuration to the files in its output folder."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfps.config import JobConfig, to_toml
from tfps.errors import ConfigError
from tfps.job import bundle
from tfps.job.curves import Curves
from tfps.job.inputs import Inputs, split
from tfps.job.result import Result, package_versions
from tfps.terminal import announce, status
from tfps.units import format_seconds

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
        started = time.monotonic()
        curves = _train(strategy, model, inputs, config)
        train_seconds = time.monotonic() - started
        stats = strategy.stats()
        say(f"Trained in {format_seconds(train_seconds)}{_staleness(stats)}; testing ...")
        with status("testing"):
            loss, accuracy, matrix = test_model(model, inputs)
            announce("saving the model")
            # Only now: the results of an earlier run survive one that fails.
            (output / "result.json").unlink(missing_ok=True)
            model.save(output / "model.keras")
    result = Result(
        test_accuracy=accuracy,
        test_loss=loss,
        train_seconds=train_seconds,
        examples_seen=curves.examples_seen or stats.examples_seen,
        steps_per_s=steps / train_seconds,
        pull_seconds=_plain(stats.pull_seconds),
        push_seconds=_plain(stats.push_seconds),
        update_seconds=_plain(stats.update_seconds),
        gradient_staleness_updates=stats.gradient_staleness_updates,
        gradients_dropped=stats.gradients_dropped,
        data_source=inputs.source,
        package_versions=package_versions(),
    )
    (output / "config.toml").write_text(to_toml(config))
    with status("drawing the pictures"):
        _draw(config, inputs, curves=curves, matrix=matrix, result=result)
    result.write(output / "result.json")
    epochs = config.training.epochs
    say(
        f"Test accuracy {accuracy:.4f} (loss {loss:.4f}) after {epochs} "
        f"{'epoch' if epochs == 1 else 'epochs'}, {result.steps_per_s:.0f} steps/s"
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
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _no_output(output, error.strerror or str(error)) from error
    if not os.access(output, os.W_OK):
        raise _no_output(output, "no permission to write there")
    earlier = any((output / name).exists() for name in RESULT_FILES)
    say(f"output   {output}" + (" (will replace an earlier run's results)" if earlier else ""))
    return output


def _no_output(output: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"training.output: received {str(output)!r}: {reason}; expected a folder to write to"
    )


def _train(strategy: Any, model: Any, inputs: Inputs, config: JobConfig) -> Curves:
    if config.training.loop == "fit":
        from tfps.job.fit_loop import train_with_fit

        return train_with_fit(model, inputs, config)
    from tfps.job.custom_loop import train_with_custom_loop

    return train_with_custom_loop(strategy, model, inputs, config)


def _draw(
    config: JobConfig, inputs: Inputs, *, curves: Curves, matrix: np.ndarray, result: Result
) -> None:
    from tfps.job.figures import draw_confusion, draw_curves, draw_staleness

    output = Path(config.training.output)
    title = f"{config.example}, {config.model.name}: test accuracy {result.test_accuracy:.1%}"
    draw_curves(curves, output / "training_curves.png", title=title)
    draw_confusion(
        matrix,
        output / "confusion_matrix.png",
        classes=bundle.example(config.example).model.CLASSES,
        title=f"{title} of {len(inputs.y_test):,} images",
    )
    counts = result.gradient_staleness_updates or {}
    draw_staleness(
        counts,
        output / "staleness.png",
        title=f"{config.consistency.mode}: {sum(counts.values()):,} gradients",
    )


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
