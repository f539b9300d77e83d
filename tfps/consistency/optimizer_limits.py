"""Limits of optimizers under a mode, as sentences for job files and strategies. Pure."""

from __future__ import annotations


def together_problem(kind: str) -> str:
    """Return the error text that an optimizer needs a mode which applies gradients one by one.

    Args:
        kind: the optimizer's class.

    Example:

    >>> together_problem("DANA")[:13]
    'received DANA'
    """
    return (
        f"received {kind}, which takes gradients of one worker at a time, under a consistency "
        "that applies the gradients of several steps or workers together; expected "
        "tfps.Asynchronous(), tfps.BoundedStaleness(s) or another optimizer, such as "
        "keras.optimizers.Adam or keras.optimizers.SGD(momentum=0.9, nesterov=True)"
    )


def average_problem() -> str:
    """Return why workers that run the optimizer cannot average weights."""
    return (
        "use_ema=True under tfps.LocalSteps or warm_up_steps averages only the weights of one "
        "worker; expected use_ema=False, or another consistency without warm_up_steps"
    )
