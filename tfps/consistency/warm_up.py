"""Warm-up: the first steps of a training, which each worker takes by itself.

Gradients at the begin of a training are large and point everywhere; those of workers that do not
wait for each other disturb one another most then. With ``warm_up_steps=w`` of a consistency mode
every worker takes its first w steps from the initial weights with an optimizer of its own, and
needs no server for that once it has them. Then all go on from the mean of the weights, weighted by
examples, with an optimizer that is new: its slots and `iterations` begin there. The steps belong to
the first epoch like any other. Workers that come later, and jobs that go on from a checkpoint, take
none.

In a custom loop each optimizer call of a scheduled function is a step, as under local steps, and a
worker keeps its weights, moving averages and slots from one function to the next. It tells the
servers at each function's end what has become of them, so that these hold the mean of all workers
at any time: what a function did is on the servers when it is done, also for a worker that gets no
more functions. Each worker that has trained counts once, since of how many examples a gradient is
the mean is not known. Who has called optimizers w times goes on by itself until all others have as
well; then functions of the mode begin, once those of the warm-up that still run have ended.

A worker that dies or hangs is not waited for, and what it has told the servers stays. It takes the
rest of its steps if it comes back in time: from the mean, if it has lost its own weights. A `fit`
before the end of the warm-up, or a restored checkpoint, ends it. `optimizer.iterations` begins
after it; ``stats().versions`` counts the workers' messages.
"""

from __future__ import annotations

from typing import Any


def is_count(value: Any) -> bool:
    """Whether it is a whole number from 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def warm_up_problems(warm_up_steps: Any) -> list[str]:
    """Say what is wrong with a number of steps.

    Example:

    >>> warm_up_problems(10)
    []
    """
    if is_count(warm_up_steps):
        return []
    return [
        f"warm_up_steps: received {warm_up_steps!r}, expected a whole number from 0: how many "
        "steps each worker takes by itself at the begin"
    ]
