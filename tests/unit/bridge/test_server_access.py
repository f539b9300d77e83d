"""Reads and writes of the chief itself are repeated if a server was lost meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.optimizers.server import LocalServer
from tfps.bridge.variables import server_access

T = TypeVar("T")
VALUE = np.array([1.0, 2.0, 3.0], "float32")


class EverythingTwice:
    """A server return that loses the server after each access, and brings it back complete."""

    def __init__(self) -> None:
        self.accesses = 0
        self._is_within = False

    def repeat(self, access: Callable[[], T]) -> T:
        if self._is_within:
            return access()
        self._is_within = True
        try:
            self.accesses += 1
            access()
            return access()
        finally:
            self._is_within = False


@pytest.fixture(params=["alone", "in a slab"])
def variable(request: pytest.FixtureRequest) -> Any:
    server = LocalServer()
    variables = [server.variable(VALUE, name=name) for name in ("first", "second")]
    if request.param == "in a slab":
        optimizer = keras.optimizers.SGD()
        optimizer.build(variables)
        assert server.lay_out((optimizer, variables))
    return variables[1]


@pytest.fixture
def watch(variable: Any) -> Iterator[EverythingTwice]:
    watch, container = EverythingTwice(), variable.value.container
    server_access.watch_accesses(container, watch)
    yield watch
    server_access.WATCHES.pop(container)


READS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "numpy": (lambda v: v.numpy(), VALUE),
    "array": (np.asarray, VALUE),
    "sum": (lambda v: v + 1.0, VALUE + 1.0),
    "rows": (lambda v: v.value.sparse_read([2, 0]), VALUE[[2, 0]]),
    "items": (lambda v: v.value.gather_nd([[1]]), VALUE[[1]]),
    "copies for other servers": (lambda v: v.value.refresh_mirrors(), None),
    "is there": (lambda v: v.value.is_initialized(), True),
}
WRITES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "assign": (lambda v: v.assign(2 * VALUE), 2 * VALUE),
    "assign_add": (lambda v: v.value.assign_add(VALUE), 2 * VALUE),
    "assign_sub": (lambda v: v.value.assign_sub(VALUE), 0 * VALUE),
    "of Keras": (lambda v: v.assign_add(VALUE), 2 * VALUE),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_is_repeated(name: str, variable: Any, watch: EverythingTwice) -> None:
    read, expected = READS[name]
    np.testing.assert_array_equal(read(variable), expected)
    assert watch.accesses > 0


@pytest.mark.parametrize("name", WRITES)
def test_a_write_counts_once(name: str, variable: Any, watch: EverythingTwice) -> None:
    write, expected = WRITES[name]
    write(variable)
    assert watch.accesses > 0
    np.testing.assert_array_equal(variable.numpy(), expected)


def test_what_is_traced_is_not_repeated(variable: Any, watch: EverythingTwice) -> None:
    @tf.function
    def double() -> Any:
        return 2 * variable.value.read_value()

    np.testing.assert_array_equal(double(), 2 * VALUE)
    assert watch.accesses == 0
