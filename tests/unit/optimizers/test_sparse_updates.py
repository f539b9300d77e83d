"""`SparseUpdates`: the rows that an update touches, what it is without servers, and refusals."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.messages import raises
from tests.unit.optimizers.server import DEVICE, LocalServer
from tfps.bridge.functions.server_function import trace_server_function
from tfps.errors import ConfigError, UnsupportedError
from tfps.optimizers import DANA, AsyncAdam, SparseUpdates, StalenessAware
from tfps.optimizers.server_update import ServerUpdate, UpdateContext
from tfps.optimizers.sparse_updates import (
    refuse_inexact_row_updates,
    refuse_to_densify,
    suggest_sparse_updates,
)
from tfps.optimizers.wrapped import get_leaf_optimizers, iter_slots

ROWS, WIDTH = 7, 3
RANDOM = np.random.default_rng(3)
TABLE = RANDOM.normal(size=(ROWS, WIDTH)).astype("float32")
BIAS = RANDOM.normal(size=(WIDTH,)).astype("float32")
PLACES = [[5, 1], [1], [], [0, 6, 5]]

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "SGD": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "decay": lambda: keras.optimizers.SGD(0.1, weight_decay=0.1),
    "clipvalue": lambda: keras.optimizers.SGD(0.1, clipvalue=0.3),
    "centered": lambda: keras.optimizers.RMSprop(0.1, momentum=0.5, centered=True),
    "amsgrad": lambda: keras.optimizers.Adam(0.1, amsgrad=True),
    "schedule": lambda: keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.1, 5)),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adam(0.1), initial_scale=1.0
    ),
    **{
        name: functools.partial(getattr(keras.optimizers, name), 0.1)
        for name in (
            "Adadelta",
            "Adagrad",
            "Adam",
            "AdamW",
            "Adamax",
            "Ftrl",
            "Lion",
            "Nadam",
            "RMSprop",
            "ScheduleFreeAdamW",
        )
    },
}


def _gradients(step: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(10 + step)
    rows = random.normal(size=(len(PLACES[step]), WIDTH)).astype("float32")
    return rows, random.normal(size=(WIDTH,)).astype("float32")


def _state(optimizer: Any, variables: list[Any]) -> list[np.ndarray]:
    """The variables, their slots, and how many updates there were."""
    (leaf,) = get_leaf_optimizers(optimizer)
    slots = [slot for _, slots in iter_slots(leaf) for slot in slots if slot is not None]
    return [v.numpy() for v in [*variables, *slots, leaf.iterations]]


def _lazily(optimizer: Any) -> list[np.ndarray]:
    """One process: dense gradients, and afterwards all other rows as they were."""
    variables = [keras.Variable(TABLE), keras.Variable(BIAS)]
    optimizer.build(variables)
    for step, places in enumerate(PLACES):
        rows, bias = _gradients(step)
        dense = np.zeros_like(TABLE)
        dense[places] = rows
        of_table = [v for v in [*variables, *optimizer.variables] if v.shape == (ROWS, WIDTH)]
        before = [v.numpy() for v in of_table]
        optimizer.apply([tf.constant(dense), tf.constant(bias)], variables)
        for variable, old in zip(of_table, before, strict=True):
            new = variable.numpy()
            old[places] = new[places]
            variable.assign(old)
    return _state(optimizer, variables)


class _ServedTable:
    """A table and a bias on a server, and a function that pushes rows for the one."""

    def __init__(self, optimizer: Any, *, in_slab: bool = False) -> None:
        self.server = server = LocalServer()
        variables = [server.variable(TABLE, name="table"), server.variable(BIAS, name="bias")]
        self.variables, self.optimizer = variables, optimizer
        variables[0].value.excluded_from_slabs = not in_slab
        optimizer.build(variables)
        server.lay_out((optimizer, variables))
        assert (variables[0].value.slab is not None) == in_slab
        self.update = ServerUpdate(
            optimizer, storage=server.storage, strategy=tf.distribute.get_strategy()
        )
        table, bias = (v.value for v in variables)

        def serve(places: tf.Tensor, rows: tf.Tensor, gradient: tf.Tensor) -> list[tf.Tensor]:
            shape = tf.constant([ROWS, WIDTH], tf.int64)
            self.update.apply(
                {
                    table.shared_name: tf.IndexedSlices(rows, places, shape),
                    bias.shared_name: gradient,
                },
                UpdateContext(DEVICE, tf.constant(0, tf.int64)),
            )
            return [places]

        self.serve = trace_server_function(
            serve,
            device=DEVICE,
            signature=[
                tf.TensorSpec([None], tf.int64),
                tf.TensorSpec([None, WIDTH]),
                tf.TensorSpec([WIDTH]),
            ],
        )

    def train(self) -> list[np.ndarray]:
        for step, places in enumerate(PLACES):
            rows, bias = _gradients(step)
            self.serve(tf.constant(places, tf.int64), tf.constant(rows), tf.constant(bias))
        return _state(self.optimizer, self.variables)


def _dense(optimizer: Any) -> list[np.ndarray]:
    variables = [keras.Variable(TABLE), keras.Variable(BIAS)]
    optimizer.build(variables)
    for step, places in enumerate(PLACES):
        rows, bias = _gradients(step)
        dense = np.zeros_like(TABLE)
        dense[places] = rows
        optimizer.apply([tf.constant(dense), tf.constant(bias)], variables)
    return _state(optimizer, variables)


def _assert_close(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)


@pytest.mark.quick("Adam-*")
@pytest.mark.parametrize("in_slab", [False, True], ids=["alone", "in a slab"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_rows_that_did_not_come_stay(name: str, in_slab: bool) -> None:
    make = OPTIMIZERS[name]
    _assert_close(_ServedTable(SparseUpdates(make()), in_slab=in_slab).train(), _lazily(make()))


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "clipvalue"])
def test_some_optimizers_have_the_numbers_of_dense_gradients(name: str) -> None:
    found = _ServedTable(SparseUpdates(OPTIMIZERS[name]())).train()
    _assert_close(found[:2], _dense(OPTIMIZERS[name]())[:2])


def test_without_it_all_rows_are_updated() -> None:
    _assert_close(_ServedTable(OPTIMIZERS["Adam"]()).train(), _dense(OPTIMIZERS["Adam"]()))


@pytest.mark.quick("inside of LossScaleOptimizer")
@pytest.mark.parametrize(
    "wrap",
    [
        lambda adam: SparseUpdates(StalenessAware(adam)),
        lambda adam: StalenessAware(SparseUpdates(adam)),
        lambda adam: keras.optimizers.LossScaleOptimizer(SparseUpdates(adam), initial_scale=1.0),
    ],
    ids=["around StalenessAware", "inside of StalenessAware", "inside of LossScaleOptimizer"],
)
def test_in_and_around_other_wrappers(wrap: Callable[[Any], Any]) -> None:
    found = _ServedTable(wrap(keras.optimizers.Adam(0.1))).train()
    _assert_close(found, _lazily(keras.optimizers.Adam(0.1)))


def test_no_operation_reads_or_writes_the_whole_table() -> None:
    """The table and its slots take one gather and one scatter each."""
    served = _ServedTable(SparseUpdates(keras.optimizers.Adam(0.1)))
    served.train()
    graph = served.serve.graph.as_graph_def()
    own = {v.value.shared_name for v in served.variables + served.optimizer.variables}
    whole = {v.value.shared_name for v in (served.variables[0], *_slots_of_table(served))}
    assert len(whole & own) == 3
    nodes = list(graph.node)
    handles = {n.name: n.attr["shared_name"].s.decode() for n in nodes if n.op == "VarHandleOp"}
    uses = [
        (node.op, handles[name])
        for node in nodes
        for name in node.input
        if handles.get(name) in whole
    ]
    assert sorted(uses) == sorted(
        (operation, name)
        for name in whole
        for operation in ("ResourceGather", "ResourceScatterUpdate")
    )


def _slots_of_table(served: _ServedTable) -> list[Any]:
    return [v for v in served.optimizer.variables if tuple(v.shape) == (ROWS, WIDTH)]


def test_on_one_machine_it_is_the_inner_optimizer(tmp_path: Path) -> None:
    def trained(optimizer: Any) -> keras.Model:
        keras.utils.set_random_seed(1)
        layers = [keras.Input((2,)), keras.layers.Embedding(9, 4), keras.layers.Flatten()]
        model = keras.Sequential([*layers, keras.layers.Dense(1)])
        model.compile(optimizer, "mse")
        x = np.arange(24).reshape(12, 2) % 9
        model.fit(x, np.ones(12), batch_size=4, shuffle=False, verbose=0)
        return model

    plain, wrapped = (
        trained(keras.optimizers.Adam(0.05)),
        trained(SparseUpdates(keras.optimizers.Adam(0.05), name="rows")),
    )
    for one, two in zip(plain.get_weights(), wrapped.get_weights(), strict=True):
        np.testing.assert_array_equal(two, one)
    wrapped.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras").optimizer
    assert isinstance(loaded, SparseUpdates)
    assert loaded.name == "rows"
    assert isinstance(loaded.inner_optimizer, keras.optimizers.Adam)
    for one, two in zip(wrapped.optimizer.variables, loaded.variables, strict=True):
        np.testing.assert_array_equal(two.numpy(), one.numpy())


class _Own(keras.optimizers.SGD):
    """An optimizer that might do anything."""


@pytest.mark.parametrize(
    ("make", "received", "expected"),
    [
        (lambda: "adam", "'adam'", "keras.optimizers.Adam"),
        (keras.optimizers.Lamb, "Lamb", "keras.optimizers.Adagrad"),
        (keras.optimizers.Muon, "Muon", "keras.optimizers.Adagrad"),
        (keras.optimizers.Adafactor, "Adafactor", "keras.optimizers.Adagrad"),
        (_Own, "_Own", "tfps_elementwise = True"),
        (DANA, "DANA", "StalenessAware"),
        (lambda: AsyncAdam(momentum="ordered"), "AsyncAdam", "tfps.optimizers.ByTable"),
        (lambda: StalenessAware(keras.optimizers.Lamb()), "Lamb", "keras.optimizers.Adagrad"),
        (
            lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adafactor()),
            "Adafactor",
            "keras.optimizers.Adagrad",
        ),
        (lambda: keras.optimizers.Adam(use_ema=True), "Adam(use_ema=True)", "use_ema=False"),
        (
            lambda: keras.optimizers.SGD(gradient_accumulation_steps=4),
            "SGD(gradient_accumulation_steps=4)",
            "larger batch",
        ),
    ],
)
def test_what_is_refused(make: Callable[[], Any], received: str, expected: str) -> None:
    with raises(ConfigError, "optimizer: ", received=f"received {received}", remedy=expected):
        SparseUpdates(make())


def test_a_constraint_across_rows_is_refused() -> None:
    table = keras.Variable(TABLE)
    optimizer = SparseUpdates(keras.optimizers.Adam())
    optimizer.build([table])
    table.constraint = keras.constraints.MaxNorm(axis=1)
    refuse_inexact_row_updates(optimizer, table)
    table.constraint = keras.constraints.MaxNorm(axis=0)
    with raises(UnsupportedError, table.path, received="MaxNorm", remedy="MaxNorm(axis=1)"):
        refuse_inexact_row_updates(optimizer, table)


class _OneCount(keras.optimizers.SGD):
    """An optimizer with a number for each variable."""

    tfps_elementwise = True

    def build(self, variables: list[Any]) -> None:
        super().build(variables)
        self._counts = [self.add_variable((), name="count") for _ in variables]


def test_a_slot_that_has_no_rows_is_refused() -> None:
    table, optimizer = keras.Variable(TABLE), SparseUpdates(_OneCount())
    optimizer.build([table])
    with raises(
        UnsupportedError,
        table.path,
        received="_counts of shape () from _OneCount",
        remedy="without tfps.optimizers.SparseUpdates",
    ):
        refuse_inexact_row_updates(optimizer, table)


def test_rows_that_would_become_dense_are_refused() -> None:
    table, other = keras.Variable(TABLE), keras.Variable(TABLE)
    optimizer = SparseUpdates(keras.optimizers.Adam())
    optimizer.build([table])
    rows = tf.IndexedSlices(tf.ones([1, WIDTH]), tf.constant([2]))
    with raises(UnsupportedError, table.path, received="row gradients", remedy="push_rows("):
        refuse_to_densify(optimizer, rows, table)
    refuse_to_densify(optimizer, rows, other)
    refuse_to_densify(optimizer, tf.convert_to_tensor(TABLE), table)
    refuse_to_densify(optimizer.inner_optimizer, rows, table)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (keras.optimizers.SGD, ("SGD", "the results stay the same")),
        (keras.optimizers.Adagrad, ("Adagrad", "the results stay the same")),
        (lambda: keras.optimizers.SGD(momentum=0.9), ("SGD", "the results change: rows")),
        (lambda: keras.optimizers.SGD(weight_decay=0.1), ("SGD", "the results change: rows")),
        (lambda: StalenessAware(keras.optimizers.Adam()), ("Adam", "the results change: rows")),
        (lambda: SparseUpdates(keras.optimizers.Adam()), None),
        (keras.optimizers.Lamb, None),
        (DANA, None),
        (lambda: keras.optimizers.Adam(use_ema=True), None),
    ],
)
def test_what_a_table_would_gain(make: Callable[[], Any], expected: Any) -> None:
    table, optimizer = keras.Variable(TABLE), make()
    optimizer.build([table])
    gains = suggest_sparse_updates(optimizer, table)
    if expected is None:
        assert gains is None
    else:
        assert gains is not None
        assert (gains[0], gains[1][: len(expected[1])]) == expected
    assert suggest_sparse_updates(optimizer, keras.Variable(TABLE)) is None


def test_a_constraint_acts_on_all_rows_of_a_table() -> None:
    table, optimizer = keras.Variable(TABLE), keras.optimizers.SGD()
    optimizer.build([table])
    table.constraint = keras.constraints.NonNeg()
    gains = suggest_sparse_updates(optimizer, table)
    assert gains is not None
    assert "the results change" in gains[1]


def test_what_several_optimizers_choose_late_is_refused() -> None:
    optimizer = SparseUpdates(keras.optimizers.MultiOptimizer(lambda _: keras.optimizers.Lamb()))
    with raises(ConfigError, "optimizer: ", received="Lamb", remedy="keras.optimizers.Adagrad"):
        optimizer.build([keras.Variable(TABLE)])
