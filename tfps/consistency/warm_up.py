"""Warm-up: each worker takes the first steps of `fit` on its own copy, without the servers.

At the begin of a training gradients are large and point in all directions; workers that do not wait
for each other disturb one another most then. With ``warm_up_steps=w`` of a consistency mode every
worker takes its first w steps from the initial weights with an optimizer of its own, and needs no
server after it has them. Then all continue from the mean of the weights, weighted by examples, with
a new optimizer: its slots and `iterations` begin there. The steps belong to the first epoch like
any other. Workers that come later, and jobs that continue from a checkpoint, take none.

A scheduled function that calls an optimizer is refused: its changes must be on the servers when it
has ended, and a warm-up would keep them on the worker from one function to the next.
"""

from __future__ import annotations

from typing import Any


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number from 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def warm_up_problems(warm_up_steps: Any) -> list[str]:
    """Return what is wrong with a number of steps, as a list of problems.

    Example:

    >>> warm_up_problems(10)
    []
    """
    if is_count(warm_up_steps):
        return []
    return [
        f"warm_up_steps: received {warm_up_steps!r}, expected a whole number from 0: the steps "
        "that each worker first takes on its own copy"
    ]
