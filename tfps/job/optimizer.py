"""The optimizer that a job file describes."""

from __future__ import annotations

import difflib
import inspect
import re
from typing import Any

from tfps.config.schema import OWN_OPTIMIZERS, OptimizerSection, StalenessSection, TrainingSection
from tfps.errors import ConfigError


def argument_problems(section: OptimizerSection) -> list[str]:
    """Return a sentence for each argument that the optimizer does not have.

    Imports Keras only if there are arguments, and creates nothing.

    Args:
        section: ``[training.optimizer]``.
    """
    arguments = section.arguments()
    if not arguments:
        return []
    cls = optimizer_class(section.name)
    known = [
        parameter.name
        for parameter in _parameters(section.name, cls)
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and parameter.name not in ("self", "learning_rate", "name")
    ]
    problems = []
    for name in arguments:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            problems.append(
                f"training.optimizer.{name}: {cls.__name__} has no such argument; {hint}"
                f"expected one of {', '.join(known)}"
            )
    return problems


def _parameters(name: str, cls: type) -> list[inspect.Parameter]:
    """Return the parameters of a class; a tfps optimizer also has those of its Keras parents."""
    if name not in OWN_OPTIMIZERS:
        return list(inspect.signature(cls).parameters.values())
    parameters: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        if "__init__" in vars(base):
            parameters = {**inspect.signature(vars(base)["__init__"]).parameters, **parameters}
    parameters.pop("nesterov", None)
    return list(parameters.values())


def build_optimizer(section: TrainingSection, *, steps: int | None) -> Any:
    """Create the optimizer, with its learning-rate schedule over all steps of the job.

    Args:
        section: ``[training]``.
        steps: the number of updates of the job, which a schedule needs; None if it is not known
            beforehand, for a constant rate.

    Raises:
        ConfigError: the optimizer refuses its arguments.
    """
    import keras

    rate: Any = section.learning_rate
    if section.learning_rate_schedule == "cosine":
        assert steps is not None
        rate = keras.optimizers.schedules.CosineDecay(rate, decay_steps=steps)
    cls, arguments = optimizer_class(section.optimizer.name), section.optimizer.arguments()
    try:
        optimizer = cls(learning_rate=rate, **arguments)
    except ConfigError as error:  # of a tfps optimizer; it names the argument
        problems = [f"training.optimizer.{problem}" for problem in error.problems]
        raise ConfigError(problems) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(_short_error(cls, error)) from error
    optimizer = _wrap_for_staleness(optimizer, section.staleness)
    return _with_sparse_updates(optimizer) if section.sparse_updates else optimizer


def trial_problems(section: TrainingSection) -> list[str]:
    """Return the error of a trial step, since Keras checks some arguments only then.

    Args:
        section: ``[training]``, with an optimizer that can be built.
    """
    if not section.optimizer.arguments():
        return []
    import keras

    optimizer = build_optimizer(section, steps=1)
    weight = keras.Variable(keras.ops.zeros((2, 2)), name="trial")
    try:
        optimizer.apply([keras.ops.ones((2, 2))], [weight])
    except Exception as error:  # noqa: BLE001 - whatever it is, it comes from the arguments
        return [_short_error(optimizer_class(section.optimizer.name), error)]
    return []


def _short_error(cls: type, error: Exception) -> str:
    # TensorFlow's messages begin with the node that failed.
    reason = re.sub(r"^\{\{.*?\}\} ", "", str(error).strip().partition("\n")[0])
    return f"training.optimizer: {cls.__name__} does not accept these arguments: {reason}"


def _wrap_for_staleness(optimizer: Any, section: StalenessSection) -> Any:
    """Wrap an optimizer only if a setting needs it, since loading a saved model needs its class."""
    from tfps.optimizers import StalenessAware

    if section.discount == "none" and section.drop_above is None:
        return optimizer
    return StalenessAware(optimizer, discount=section.discount, drop_above=section.drop_above)


def _with_sparse_updates(optimizer: Any) -> Any:
    from tfps.optimizers import SparseUpdates

    try:
        return SparseUpdates(optimizer)
    except ConfigError as error:
        problems = [problem.removeprefix("optimizer: ") for problem in error.problems]
        raise ConfigError(
            [f"training.sparse_updates: {problem}" for problem in problems]
        ) from error


def optimizer_class(name: str) -> type:
    """Return the class of a name: of `keras.optimizers` in lower case, or of tfps."""
    import keras

    if name in OWN_OPTIMIZERS:
        from tfps import optimizers

        own: type = getattr(optimizers, OWN_OPTIMIZERS[name])
        return own
    classes = {key.lower(): value for key, value in vars(keras.optimizers).items()}
    cls = classes[name]
    assert inspect.isclass(cls)
    return cls
