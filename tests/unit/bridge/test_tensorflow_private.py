"""Every private name of TensorFlow that the package stands on exists in the installed one."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tfps.bridge import tensorflow_private as private
from tfps.bridge.private_places import TENSORFLOW

FILE = Path(inspect.getfile(private))
TREE = ast.parse(FILE.read_text())


# The modules of TensorFlow, by the names that the file gives them.
MODULES: dict[str, Any] = {
    name: getattr(private, name)
    for name, paths in TENSORFLOW.paths.items()
    if ":" not in paths[0] and hasattr(private, name)
}


def _chain(node: ast.expr) -> list[str]:
    """``["ops", "get_default_graph"]`` of ``ops.get_default_graph``; calls are looked through."""
    names: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            names.insert(0, node.attr)
            node = node.value
        elif isinstance(node, ast.Name):
            return [node.id, *names]
        else:
            return ["()", *names]


CHAINS = sorted({tuple(_chain(n)) for n in ast.walk(TREE) if isinstance(n, ast.Attribute)})
# What the file itself puts on TensorFlow's objects.
OURS = ("_tfps_patched", "_tfps_remove_function", "_nested_functions")
OF_MODULES = [chain for chain in CHAINS if chain[0] in MODULES and chain[-1] not in OURS]
PRIVATE_OF_OBJECTS = sorted(
    {
        name
        for chain in CHAINS
        if chain[0] not in {*MODULES, "tf"}
        for name in chain[1:]
        if name.startswith("_") and not name.startswith("__") and name not in OURS
    }
)

LISTED = {
    (owner, *name.split(".")) for owner, names in TENSORFLOW.attributes.items() for name in names
}


def test_the_file_is_understood() -> None:
    assert len(MODULES) >= 7
    assert ("ops", "get_default_graph") in OF_MODULES
    assert "_cancellation_mgr" in PRIVATE_OF_OBJECTS


@pytest.mark.parametrize("chain", OF_MODULES, ids=".".join)
def test_names_of_modules(chain: tuple[str, ...]) -> None:
    value = MODULES[chain[0]]
    for name in chain[1:]:
        assert hasattr(value, name), f"{value} has no {name}"
        value = getattr(value, name)


@pytest.mark.parametrize("chain", OF_MODULES, ids=".".join)
def test_names_of_modules_are_in_the_table(chain: tuple[str, ...]) -> None:
    assert any(chain == listed[: len(chain)] or listed == chain[: len(listed)] for listed in LISTED)


@pytest.mark.parametrize("name", PRIVATE_OF_OBJECTS)
def test_every_private_name_of_an_object_is_in_the_table(name: str) -> None:
    assert name in {listed[-1] for listed in LISTED}


def test_a_graph_of_a_function_manages_control_dependencies() -> None:
    found = []

    @tf.function
    def trace() -> None:
        found.append(private.current_graph().experimental_acd_manager.run_independently)

    trace.get_concrete_function()
    assert callable(found[0])


def test_the_anonymous_name_is_tensorflows() -> None:
    """`VarHandleOp` makes a new variable for this name each time."""
    assert MODULES["ops"].context.anonymous_name() == private.ANONYMOUS_NAME
