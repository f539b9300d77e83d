"""Keras's own tests of its trainer, which Keras ships, and why some of them are not run."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
import types
from fnmatch import fnmatchcase
from typing import Any

MODULE = "keras.src.trainers.trainer_test"
# By patterns of names; a test is looked up here before it is run.
NOT_RUN = {
    "*_jax_*": "needs JAX, another backend",
    "*torch*": "needs PyTorch, another backend",
    "*_scipy_*": "needs SciPy, which the tests do not install",
    "*_grain_*": "needs Grain, which the tests do not install",
    "test_fit_sparse_tf_*": "looks for rows in calls of the optimizer that no process makes: "
    "a worker adds up the rows of a gradient, and servers update",
}

# Run, and expected to fail.
DIFFERENT = {
    "test_steps_per_execution_steps_per_epoch_match_multi_epoch_*jit": "a limit: Keras goes on to "
    "the end of an execution that `steps_per_epoch` cuts; tfps ends the epoch where it says"
}


def names() -> list[str]:
    """Return the names of all tests; none where Keras is a version that ships no tests."""
    is_shipped = importlib.util.find_spec(MODULE) is not None
    return [name for name in dir(load_tests()) if name.startswith("test_")] if is_shipped else []


def reason_against(name: str) -> str | None:
    """Return why a test is not run; None if it is."""
    test = getattr(load_tests(), name)
    reasons = {pattern: reason for pattern, reason in NOT_RUN.items() if fnmatchcase(name, pattern)}
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "skipif" and mark.args[0]:
            reasons["of Keras"] = mark.kwargs["reason"]
    return next(iter(reasons.values()), None)


@functools.cache
def load_tests() -> Any:
    """Return the class of the tests; its module imports JAX, which only tests of JAX use."""
    placeholder = types.ModuleType("jax")
    with contextlib.ExitStack() as stack:
        if sys.modules.setdefault("jax", placeholder) is placeholder:
            stack.callback(sys.modules.pop, "jax")
        return importlib.import_module(MODULE).TestTrainer
