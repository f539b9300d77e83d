"""The name of a resource says what it is: a program that is built again finds the same names."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf

from tests.unit.optimizers.server import DEVICE, LocalServer
from tfps.optimizers import AsyncAdam, StalenessAware
from tfps.partitioners.row_rule import Contiguous
from tfps.runtime.coordinator.resource_names import BOOKKEEPING, ResourceNames

# Of an operation, which is the narrowest of TensorFlow's rules for names.
TAKEN_BY_TENSORFLOW = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")


def _names_of_a_program(order: Sequence[str]) -> tuple[dict[str, str], set[str]]:
    """Return each variable's name by its path, and all resources that training two layers leaves.

    Args:
        order: in which the layers are built.
    """
    server = LocalServer()
    layers = {
        layer: [
            server.variable(np.ones([2, 2]), name="kernel", layer=layer),
            server.variable(np.ones([2]), name="bias", layer=layer),
        ]
        for layer in order
    }
    variables = layers["first"] + layers["second"]
    optimizer = StalenessAware(AsyncAdam(0.1, name="adam"), name="discounted")
    optimizer.build(variables)
    server.lay_out((optimizer, variables))
    push = server.push(optimizer, variables, workers=2)
    push([np.ones(v.shape, "float32") for v in variables])
    found = {v.path: v.value.shared_name for v in (*variables, *optimizer.variables)}
    server.storage.collect()
    return found, {resource.shared_name for resource in server.storage.contents[0].records}


def test_a_program_that_is_built_again_finds_its_names() -> None:
    by_path, resources = _names_of_a_program(["first", "second"])
    assert by_path["first/kernel"] == "variables/first/kernel"
    assert by_path["adam/first_kernel_momentum"] == "variables/adam/first_kernel_momentum"
    weights, *slots = sorted(name for name in resources if name.startswith("slabs/"))
    assert slots == [f"{weights}/adam/momentums", f"{weights}/adam/velocities"]
    assert f"bookkeeping/discounted/{slots[0]}/of_workers" in resources
    again = _names_of_a_program(["first", "second"])
    assert again == (by_path, resources)
    assert _names_of_a_program(["second", "first"]) == again


def test_the_second_of_a_path_gets_a_number() -> None:
    """Two models of one job may have layers of the same name."""
    storage = LocalServer().storage

    def made(path: str) -> str:
        return storage.create_variable(1.0, device=DEVICE, path=path).shared_name

    kept = [
        storage.create_variable(float(i), device=DEVICE, path="head/kernel", name="kernel")
        for i in range(2)
    ]
    assert [v.shared_name for v in kept] == ["variables/head/kernel", "variables/head/kernel>2"]
    assert [float(v.numpy()) for v in kept] == [0.0, 1.0]
    # When a variable is collected is up to Python: what it was called is not given again.
    del kept
    storage.collect()
    assert made("head/kernel") == "variables/head/kernel>3"
    assert made("other/kernel") == "variables/other/kernel"


def test_a_variable_that_moves_keeps_its_name() -> None:
    """Counters of optimizers move so, from the server where the policy put them at first."""
    storage = LocalServer().storage
    old = storage.create_variable(1.0, device=DEVICE, path="adam/iteration")
    bytes_before = storage.bytes_per_server
    storage.free(old)
    new = storage.create_variable(2.0, device=DEVICE, path="adam/iteration", replaces=old)
    del old
    storage.collect()
    assert new.shared_name == "variables/adam/iteration"
    assert new.numpy() == 2.0
    assert storage.bytes_per_server == bytes_before
    foreign_variable = LocalServer().storage.create_variable(
        3.0, device=DEVICE, path="adam/iteration"
    )
    another = storage.create_variable(
        3.0, device=DEVICE, path="adam/iteration", replaces=foreign_variable
    )
    assert another.shared_name == "variables/adam/iteration>2"
    storage.free(foreign_variable)  # of another container
    assert new.numpy() == 2.0


def test_shards_are_called_by_the_path_of_the_whole() -> None:
    storage = LocalServer().storage
    tables = [
        storage.create_sharded(
            [tf.zeros([2, 1]), tf.ones([1, 1])],
            rule=Contiguous(3, 2),
            device_of=lambda _: DEVICE,
            path="embedding/embeddings",
        )
        for _ in range(2)
    ]
    path = "variables/embedding/embeddings"
    assert [table._unique_id for table in tables] == [path, f"{path}>2"]
    assert [[v.shared_name for v in table.variables] for table in tables] == [
        [f"{path}/0", f"{path}/1"],
        [f"{path}/0>2", f"{path}/1>2"],
    ]


@pytest.mark.parametrize("path", ["ledger", "größe/w: 1", "a>2", "_a", "/", "a b/c\\d", "層"])
def test_any_path_gets_a_name_that_tensorflow_takes(path: str) -> None:
    names = ResourceNames()
    found = [
        names.unique_name(path),
        names.unique_name(path),
        names.unique_name(path, kind=BOOKKEEPING),
    ]
    assert len({*found, path}) == 4
    assert all(TAKEN_BY_TENSORFLOW.fullmatch(name) for name in found)
    variable = LocalServer().storage.create_variable([1.5], device=DEVICE, path=path)
    assert variable.shared_name == found[0]
    assert variable.numpy() == [1.5]


def test_paths_that_look_like_numbers_or_codes_are_their_own() -> None:
    names = ResourceNames()
    paths = ["a", "a", "a>2", "a b", "a>20>b", "a_b", "a.b", "a-b"]
    assert len({names.unique_name(path) for path in paths}) == len(paths)
