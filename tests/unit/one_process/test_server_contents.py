"""Servers hold what their record says, and can be made again from it."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.unit.one_process.unit_steps import counters, fit, schedule
from tfps.bridge import tensorflow_private as private
from tfps.bridge.functions.server_function import trace_server_function
from tfps.bridge.variables.named_resource import NamedResource, open_mutex
from tfps.bridge.variables.server_variable import ServerVariable
from tfps.runtime.coordinator.server_contents import ServedPlan, ServerContents
from tfps.transport.service import Service

STEPS = 4

Make = Callable[..., tfps.ParameterServerStrategy]

MODES = {
    "asynchronous": tfps.Asynchronous(),
    "bounded": tfps.BoundedStaleness(1),
    "synchronous": tfps.Synchronous(),
    "local": tfps.LocalSteps(2),
    "warm-up": tfps.BoundedStaleness(1, warm_up_steps=2),
}


class ServerResource(NamedTuple):
    """A resource of a server."""

    device: str
    container: str
    name: str


class OpenedResources:
    """The named resources that operations of any program have opened.

    Attributes:
        eagerly: those of operations that ran at once, with the kind of the operation.
    """

    def __init__(self) -> None:
        self.eagerly: dict[ServerResource, str] = {}

    def note(self, kind: str, _: Any, attributes: Any, outputs: Any, *__: Any, **___: Any) -> None:
        """Called by TensorFlow after each operation of this thread."""
        found = dict(zip(attributes[::2], attributes[1::2], strict=True))
        if found.get("shared_name") and tf.executing_eagerly():
            container, name = (_text(found[key]) for key in ("container", "shared_name"))
            self.eagerly[ServerResource(outputs[0].device, container, name)] = kind

    def held(self, strategy: tfps.ParameterServerStrategy) -> set[ServerResource]:
        """The resources that a strategy's servers hold for it, without freed variables."""
        context, found = _context(), dict(self.eagerly)
        for function in context.list_function_names():
            nodes = []
            with contextlib.suppress(tf.errors.NotFoundError):  # it has ended just now
                nodes = context.get_function_def(function).node_def
            for node in nodes:
                if node.attr["shared_name"].s:
                    container, name = (
                        node.attr[k].s.decode() for k in ("container", "shared_name")
                    )
                    found[ServerResource(node.device, container, name)] = node.op
        runtime = strategy.runtime
        containers = (runtime.container, runtime.container.replace("_", "-"))
        return {
            named
            for named, kind in found.items()
            if named.container in containers
            and named.device in runtime.topology.servers
            and (kind != "VarHandleOp" or _is_there(named))
        }


def _context() -> Any:
    """TensorFlow's context, which knows all functions of this process and reports operations."""
    return vars(private)["context"].context()


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _is_there(named: ServerResource) -> bool:
    resource = NamedResource(named.container, named.name, named.device)
    with tf.device(named.device):
        return bool(tf.raw_ops.VarIsInitializedOp(resource=resource.handle()))


def _recorded(strategy: tfps.ParameterServerStrategy) -> set[ServerResource]:
    return {
        ServerResource(resource.device, resource.container, resource.shared_name)
        for contents in strategy.runtime.contents
        for resource in contents.records
    }


@pytest.fixture
def opened() -> Iterator[OpenedResources]:
    made, context = OpenedResources(), _context()
    context.add_op_callback(made.note)
    yield made
    context.remove_op_callback(made.note)


@pytest.mark.repeats
@pytest.mark.parametrize("name", MODES)
def test_the_record_is_what_servers_hold(
    make_strategy: Make, opened: OpenedResources, name: str
) -> None:
    strategy = make_strategy(MODES[name])
    model = counters(strategy)
    if name != "warm-up":  # which functions refuse
        schedule(strategy, model, steps=STEPS)
    fit(model, steps=STEPS)
    strategy.runtime.collect()
    recorded = _recorded(strategy)
    assert opened.held(strategy) == recorded
    assert {"ledger", "mutex"} <= {named.name for named in recorded}
    strategy.close()
    assert _recorded(strategy) == set()
    assert not [named for named in recorded if _is_there(named)]


@pytest.mark.repeats
def test_what_a_model_and_a_checkpoint_need_is_recorded(
    make_strategy: Make, opened: OpenedResources, tmp_path: Path
) -> None:
    """Mirrors, rows of tables, what an optimizer knows of workers, and snapshots."""
    strategy = make_strategy()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Embedding(2000, 4), keras.layers.Dense(1)])
        model.compile(tfps.optimizers.AsyncAdam(), "mse")
    model.fit(np.zeros([8, 1]), np.zeros([8, 1, 1]), batch_size=2, verbose=0)
    strategy.push({}, strategy.pull()[1])
    manager = tfps.CheckpointManager(model, tmp_path)
    manager.save()
    manager.wait()
    manager.close()
    strategy.runtime.collect()
    assert opened.held(strategy) == _recorded(strategy)
    assert not [named for named in _recorded(strategy) if named.name.startswith("snapshot")]


@pytest.mark.parametrize("kind", ["variable", "mutex", "in a function"])
def test_what_is_made_beside_the_record_is_found(
    make_strategy: Make, opened: OpenedResources, kind: str
) -> None:
    strategy = make_strategy()
    device, container = strategy.runtime.servers[0].device, strategy.runtime.container

    def lock() -> list[tf.Tensor]:
        return [tf.raw_ops.MutexLock(mutex=open_mutex(container, "beside"))]

    kept: Any  # as long as this test
    if kind == "variable":
        kept = ServerVariable(1.0, device=device, container=container, shared_name="beside")
    elif kind == "mutex":
        with tf.device(device):
            kept = open_mutex(container, "beside")
    else:
        kept = trace_server_function(lock, device=device, signature=[])
    beside = ServerResource(device, container, "beside")
    assert opened.held(strategy) - _recorded(strategy) == {beside}
    NamedResource(container, "beside", device).destroy()
    del kept


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_a_server_is_made_again(make_strategy: Make, lost: int) -> None:
    """All that it held is destroyed and replayed, and values are restored: training goes on."""
    strategy = make_strategy(tfps.BoundedStaleness(1))
    model = counters(strategy)
    schedule(strategy, model, steps=STEPS)
    fit(model, steps=STEPS)
    assert model.counts() == [2 * STEPS] * 2
    server, before = strategy.runtime.servers[lost], _recorded(strategy)
    values = _values(server.contents)
    for resource in server.contents.records:
        resource.destroy()
    weight = (model.first, model.second)[lost]
    with pytest.raises(tf.errors.OpError):
        weight.numpy()
    strategy.runtime.recreate_contents(server)
    assert _recorded(strategy) == before
    assert weight.numpy() == 0.0
    assert server.cells().tolist() == server.layout.make_blank_cells()
    for resource, value in values.items():
        resource.write(value)
    fit(model, steps=STEPS)
    schedule(strategy, model, steps=STEPS)
    assert model.counts() == [4 * STEPS] * 2
    assert int(model.optimizer.iterations.numpy()) == 4 * STEPS


def _values(contents: ServerContents) -> dict[NamedResource, tf.Tensor]:
    """The values that a checkpoint and the servers that live would know."""
    with tf.device(contents.device):
        return {
            resource: tf.raw_ops.ReadVariableOp(resource=resource.handle(), dtype=record.dtype)
            for resource, record in contents.records.items()
            if record is not None
        }


@pytest.mark.repeats
def test_what_no_checkpoint_holds_begins_as_it_began(make_strategy: Make) -> None:
    """Bookkeeping begins with its own values, what is restored with zeros of its shape."""
    strategy = make_strategy(tfps.Synchronous())
    model = counters(strategy)
    fit(model, steps=STEPS)
    contents = strategy.runtime.contents[0]
    trained = _values(contents)
    for resource in contents.records:
        resource.destroy()
    contents.recreate()
    blank = _values(contents)
    assert [(v.shape, v.dtype) for v in blank.values()] == [
        (v.shape, v.dtype) for v in trained.values()
    ]
    found = {resource.shared_name: value.numpy() for resource, value in blank.items()}
    assert found["ledger"].tolist() == strategy.runtime.servers[0].layout.make_blank_cells()
    assert set(found["applied_pushes"]) == {-1}
    assert not any(value.any() for name, value in found.items() if name.startswith("slabs"))


class Successor:
    """Traces a function of a server."""

    def trace(self, number: tf.Tensor) -> list[tf.Tensor]:
        return [number + 1]


def test_a_plan_is_recorded_as_long_as_somebody_uses_it(make_strategy: Make) -> None:
    """The record holds functions, but not the objects that have traced them."""
    runtime = make_strategy().runtime
    server, owner = runtime.servers[0], Successor()
    function = trace_server_function(
        owner.trace, device=server.device, signature=[tf.TensorSpec([], tf.int64)]
    )
    plan = ServedPlan(Service(runtime.job_id, 7, 1, ()), (function,))
    runtime.install(server, plan, owner=owner)
    runtime.collect()
    assert server.contents.plans == {7: plan}
    del owner
    gc.collect()
    runtime.collect()
    assert server.contents.plans == {}
