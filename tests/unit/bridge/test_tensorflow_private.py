"""Every private name of TensorFlow that the package stands on exists in the installed one."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import textwrap
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tfps.bridge import tensorflow_private as private

FILE = Path(inspect.getfile(private))
TREE = ast.parse(FILE.read_text())


def _imported() -> dict[str, Any]:
    """The modules of TensorFlow that the file imports, by the names that it gives them."""
    modules = {}
    for node in ast.walk(TREE):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tensorflow.python"):
            for alias in node.names:
                name = alias.asname or alias.name
                modules[name] = getattr(private, name)
    return modules


MODULES = _imported()


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

COORDINATOR = MODULES["cluster_coordinator"]
# Which class defines the names that the file uses on the objects that its functions receive.
OWNERS: dict[str, Any] = {
    "_cluster": COORDINATOR.ClusterCoordinator,
    "_cancellation_mgr": COORDINATOR._CoordinatedClosureQueue,
    "closure_queue": COORDINATOR.Cluster,
    "workers": COORDINATOR.Cluster,
    "schedule": COORDINATOR.Cluster,
    "failure_handler": COORDINATOR.Cluster,
    "create_resource": COORDINATOR.Worker,
    "_is_dead_with_error": COORDINATOR.Worker,
    "_context_handle": MODULES["context"].Context,
    "_clone": MODULES["polymorphic_function"].Function,
    "_get_error": COORDINATOR.RemoteValueImpl,
    "_should_preemption_thread_run": COORDINATOR.WorkerPreemptionHandler,
    "_cluster_update_lock": COORDINATOR.WorkerPreemptionHandler,
    "_cluster_due_for_update_or_finish": COORDINATOR.WorkerPreemptionHandler,
    "stop": COORDINATOR.WorkerPreemptionHandler,
    "_add_control_input": tf.Operation,
    "_graph": MODULES["auto_control_deps"].AutomaticControlDependencies,
    "_message": tf.errors.OpError,
    "execute_on": COORDINATOR.Closure,
    "_concrete_function": COORDINATOR.Closure,
    "executor": COORDINATOR.Worker,
    "device_name": COORDINATOR.Worker,
    "_closed": tf.compat.v1.Session,
}


def _defines(owner: type, name: str) -> bool:
    """Whether a class has an attribute, or one of its methods sets it."""
    if hasattr(owner, name):
        return True
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and _chain(node) == ["self", name]
        for base in owner.__mro__[:-1]
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(base))))
    )


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (COORDINATOR.Worker, "_on_worker_recovery"),  # bridge/worker_return.py
        (COORDINATOR.RemoteValueImpl, "_copy_to_local"),  # bridge/remote_value.py
        (COORDINATOR.RemoteValueImpl, "_values"),  # bridge/remote_value.py
        (tf.Graph, "_get_function"),  # bridge/traced_graph.py, bridge/movable_operation.py
        (tf.data.Dataset, "_functions"),  # bridge/traced_graph.py
        (tf.data.Dataset, "_inputs"),  # bridge/traced_graph.py
        (MODULES["atomic_function"].AtomicFunction, "_cached_graph"),  # bridge/traced_graph.py
        (tf.Operation, "_id"),  # bridge/movable_operation.py
        (tf.Operation, "_update_input"),  # bridge/movable_operation.py
    ],
)
def test_what_other_files_of_the_bridge_use_exists(owner: type, name: str) -> None:
    assert _defines(owner, name)


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


@pytest.mark.parametrize(("name", "owner"), OWNERS.items())
def test_names_of_objects(name: str, owner: type) -> None:
    assert _defines(owner, name), f"{owner.__name__} defines no {name}"


@pytest.mark.parametrize("name", PRIVATE_OF_OBJECTS)
def test_every_private_name_of_an_object_has_an_owner(name: str) -> None:
    assert name in OWNERS, f"say in OWNERS which class of TensorFlow defines {name}"


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


@pytest.mark.parametrize("version", ["2.20.0", "2.22.1", "3.0.0", "2.210.0"])
def test_another_tensorflow_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf, "__version__", version)
    spec = importlib.util.spec_from_file_location("guarded", FILE)
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ImportError) as caught:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    message = str(caught.value)
    assert f"TensorFlow {version}" in message
    assert f"pip install 'tensorflow=={private.SUPPORTED_TENSORFLOW}.*'" in message
