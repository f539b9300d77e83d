"""The optimizer that a job file describes."""

from __future__ import annotations

import difflib
import inspect
from typing import Any

from tfps.config.schema import OptimizerSection, StalenessSection, TrainingSection


def argument_problems(section: OptimizerSection) -> list[str]:
    """Return a sentence for every argument that the optimizer does not have.

    Keras is imported only if there are arguments; nothing is created.

    Args:
        section: ``[training.optimizer]``.
    """
    arguments = section.arguments()
    if not arguments:
        return []
    cls = optimizer_class(section.name)
    parameters = inspect.signature(cls).parameters.values()
    known = [
        parameter.name
        for parameter in parameters
        if parameter.kind is not parameter.VAR_KEYWORD
        and parameter.name not in ("learning_rate", "name")
    ]
    problems = []
    for name in arguments:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            problems.append(
                f"training.optimizer.{name}: {cls.__name__} has no such argument; {hint}"
                f"allowed: {', '.join(known)}"
            )
    return problems


def build_optimizer(section: TrainingSection, *, steps: int) -> Any:
    """Create the optimizer, with its learning-rate schedule over all steps of the job.

    Args:
        section: ``[training]``.
        steps: how many updates the job makes; a schedule ends with the last one.
    """
    import keras

    rate: Any = section.learning_rate
    if section.learning_rate_schedule == "cosine":
        rate = keras.optimizers.schedules.CosineDecay(rate, decay_steps=steps)
    optimizer = optimizer_class(section.optimizer.name)(
        learning_rate=rate, **section.optimizer.arguments()
    )
    staleness = section.staleness
    if staleness == StalenessSection():
        return optimizer  # a saved model needs nothing of tfps to be loaded
    from tfps.optimizers import StalenessAware

    return StalenessAware(optimizer, discount=staleness.discount, drop_above=staleness.drop_above)


def optimizer_class(name: str) -> type:
    """Return the class of `keras.optimizers` that a name in lower case means."""
    import keras

    classes = {key.lower(): value for key, value in vars(keras.optimizers).items()}
    cls = classes[name]
    assert inspect.isclass(cls)
    return cls
