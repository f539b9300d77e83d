"""Every name of the tables exists, and what is missing is reported in one error."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import pytest
import tensorflow as tf

import tfps
from tests.messages import raises
from tfps.bridge import keras_private
from tfps.bridge import tensorflow_private as private
from tfps.bridge.private_names import (
    check_attributes,
    find_changed_parameters,
    find_names,
    find_newer_packages,
    untested_is_allowed,
)
from tfps.bridge.private_places import KERAS, PACKAGES
from tfps.errors import ConfigError, UnsupportedError
from tfps.optimizers import ByTable

# All releases that rows have, whatever was tested.
RANGES = {
    "tensorflow": ("2.21.0", "2.20.0", "2.19.1", "2.18.1", "2.17.1", "2.16.2"),
    "keras": ("3.15.1", "3.14.1", "3.13.2", "3.12.4"),
}
SOURCES = list(Path(tfps.__file__).parent.rglob("*.py"))


@pytest.fixture(autouse=True)
def _ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFPS_UNTESTED", raising=False)  # of `make test-versions`
    for name, tested in RANGES.items():
        ranged = dataclasses.replace(PACKAGES[name], tested=tested)
        monkeypatch.setitem(PACKAGES, name, ranged)


def _refused(package: str) -> str:
    with pytest.raises(ImportError) as caught:
        find_names(package)
    return str(caught.value)


def _loaded_again(module: ModuleType) -> ModuleType:
    spec = importlib.util.spec_from_file_location("again", str(module.__file__))
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    return again


@pytest.mark.parametrize("package", PACKAGES)
def test_all_places_exist_here(package: str) -> None:
    missing = set(PACKAGES[package].paths) - set(find_names(package))
    assert missing <= set(PACKAGES[package].features)


def test_all_attributes_exist_here() -> None:
    check_attributes()


@pytest.mark.parametrize("package", PACKAGES.values(), ids=lambda package: package.title)
def test_attributes_and_features_are_of_names_of_the_table(package: Any) -> None:
    assert {*package.attributes, *package.features} <= set(package.paths)


def test_functions_have_the_parameters_that_are_passed() -> None:
    assert find_changed_parameters() == []


def test_a_function_with_other_parameters_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras.layers.Embedding, "call", lambda self, ids, inputs: None)
    [changed] = find_changed_parameters()
    assert changed.endswith("Embedding.call(self, ids), expected (self, inputs)")


def test_every_name_taken_from_keras_is_in_the_table() -> None:
    own = set(vars(keras_private)) - set(KERAS.paths)
    taken = {
        alias.name
        for file in SOURCES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "tfps.bridge.keras_private"
        for alias in node.names
    }
    assert taken
    assert taken - own <= set(KERAS.paths)


def test_only_the_table_names_private_modules() -> None:
    text = re.compile(r"""(import |from |["'])(keras\.src|tensorflow\.python)\b""")
    named = [file.name for file in SOURCES if text.search(file.read_text())]
    assert not named


def _private_names(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Yield the private names in a file, and whether the file defines them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            yield node.attr, is_own and isinstance(node.ctx, ast.Store)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, True
        elif isinstance(node, ast.Name):
            yield node.id, isinstance(node.ctx, ast.Store)


# Of Python's own modules, and of base classes in TensorFlow.
OF_OTHERS = {"_SSLMethod", "_replace", "_run_exitfuncs", "_container_strategy", "_extended"}
# Of subclasses that are used only where they exist.
LOOKED_FOR = {
    "_handle_data",
    "_iterator_resource",
    "_local_names",
    "_trackable",
    "_distributed_dataset",
}


def test_every_private_attribute_is_in_a_table() -> None:
    names = [each for file in SOURCES for each in _private_names(ast.parse(file.read_text()))]
    defined = {name for name, is_defined in names if is_defined}
    used = {
        name
        for name, _ in names
        if name.startswith("_") and not name.startswith(("__", "_tfps_")) and name not in defined
    }
    listed = {
        part
        for package in PACKAGES.values()
        for attributes in package.attributes.values()
        for attribute in attributes
        for part in attribute.split(".")
    }
    assert used - listed - OF_OTHERS - LOOKED_FOR - {"_"} == set()


def test_all_that_is_missing_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(keras_private.trainer_module, "TensorFlowTrainer")
    monkeypatch.delattr(keras_private.saving_lib, "H5IOStore")
    monkeypatch.delattr(private.ops, "colocate_with")
    message = _refused("keras")
    assert f"received TensorFlow {tf.__version__} with Keras {keras.__version__}" in message
    for missing in (
        "keras.src.backend.tensorflow.trainer.TensorFlowTrainer",
        "keras.src.saving.saving_lib.H5IOStore",
        "tensorflow.python.framework.ops.colocate_with",
    ):
        assert missing in message
    assert message.count("pip install") == 1


def test_a_missing_name_of_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(private.cluster_coordinator, "_CoordinatedClosureQueue")
    monkeypatch.delattr(private.cluster_coordinator, "_is_ps_failure")
    with pytest.raises(ImportError) as caught:
        _loaded_again(private)
    message = str(caught.value)
    assert "cluster_coordinator._CoordinatedClosureQueue" in message
    assert "cluster_coordinator._is_ps_failure" in message
    assert message.endswith(f"--force-reinstall --no-deps 'tensorflow=={tf.__version__}'")


def test_a_missing_name_of_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(keras_private.trainer_module, "concat")
    with pytest.raises(ImportError) as caught:
        _loaded_again(keras_private)
    message = str(caught.value)
    assert "keras.src.backend.tensorflow.trainer.concat" in message
    assert message.endswith(f"--force-reinstall --no-deps 'keras=={keras.__version__}'")


def test_a_missing_attribute_is_reported_before_anything_is_patched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(keras.layers.BatchNormalization, "_moments")
    monkeypatch.delattr(private.script_ops, "_py_funcs")
    with pytest.raises(ImportError) as caught:
        check_attributes()
    assert "BatchNormalization._moments" in str(caught.value)
    assert "tensorflow.python.ops.script_ops._py_funcs._funcs" in str(caught.value)


@pytest.mark.parametrize(
    ("package", "version", "nearest"),
    [
        ("tensorflow", "2.15.1", "2.16.2"),
        ("tensorflow", "1.15.0", "2.16.2"),
        ("keras", "3.11.3", "3.12.4"),
        ("keras", "2.15.0", "3.12.4"),
        ("keras", "unknown", "3.12.4"),
    ],
)
def test_an_older_version_is_refused_with_the_nearest(
    package: str, version: str, nearest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr({"tensorflow": tf, "keras": keras}[package], "__version__", version)
    message = _refused(package)
    assert f"{PACKAGES[package].title} {version}" in message
    assert "expected TensorFlow 2.16 to 2.21 with Keras 3.12 to 3.15" in message
    assert message.endswith(f"pip install '{package}=={nearest}'")


@pytest.mark.parametrize(
    ("package", "version", "is_newer"),
    [
        ("tensorflow", "2.16.2", False),
        ("tensorflow", "2.17.0+nv24.10", False),
        ("tensorflow", "2.22.1", True),
        ("tensorflow", "2.23.0-dev20261026", True),
        ("tensorflow", "2.210.0", True),
        ("keras", "3.12.0", False),
        ("keras", "3.16.0.dev2026102704", True),
    ],
)
def test_a_newer_version_is_left_to_the_check_of_the_first_strategy(
    package: str, version: str, is_newer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = {"tensorflow": tf, "keras": keras}
    for name, module in modules.items():
        monkeypatch.setattr(module, "__version__", RANGES[name][0])
    monkeypatch.setattr(modules[package], "__version__", version)
    assert find_names(package)
    assert find_newer_packages() == [package] * is_newer


def test_the_user_may_take_an_older_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras, "__version__", "3.11.3")
    monkeypatch.setenv("TFPS_UNTESTED", "1")
    assert find_names("keras")
    monkeypatch.setenv("TFPS_UNTESTED", "yes")
    with raises(ConfigError, "TFPS_UNTESTED", received="'yes'", remedy="'1'"):
        find_names("keras")


def test_versions_are_refused_unless_the_variable_is_set() -> None:
    assert not untested_is_allowed()


def test_the_distribution_that_is_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        metadata, "packages_distributions", lambda: {"tensorflow": ["tensorflow_cpu"]}
    )
    monkeypatch.setattr(tf, "__version__", "2.15.0")
    assert _refused("tensorflow").endswith("pip install 'tensorflow-cpu==2.16.2'")


def test_the_newest_place_that_exists_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = keras_private.trainer_module
    monkeypatch.setattr(trainer, "Trainer", keras_private.TensorFlowTrainer, raising=False)
    monkeypatch.delattr(trainer, "TensorFlowTrainer")  # as in Keras 3.16
    assert find_names("keras")["TensorFlowTrainer"] is trainer.Trainer


def test_a_missing_feature_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keras 3.14 has no such class: everything else is found, and only ByTable is refused."""
    monkeypatch.delattr(keras.optimizers, "MultiOptimizer", raising=False)
    names = find_names("keras")
    assert set(KERAS.paths) - set(names) == {"MultiOptimizer"}
    check_attributes()
    loaded: Any = _loaded_again(keras_private)
    monkeypatch.setattr(
        "tfps.optimizers.by_table.refuse_missing_class", loaded.refuse_missing_class
    )
    with raises(UnsupportedError, "ByTable", received="keras.optimizers.MultiOptimizer"):
        ByTable({"users": "adagrad"})
    absent = loaded.MultiOptimizer
    assert not isinstance(keras.optimizers.SGD(), absent)
    assert "apply" in vars(absent)  # is patched, as that of the class itself
    with raises(UnsupportedError, "MultiOptimizer"):
        absent()


def test_optimizers_that_a_keras_lacks_are_left_out() -> None:
    found = keras_private.find_optimizers("SGD", "OptimizerOfTheFuture")
    assert found == {keras.optimizers.SGD}


def test_an_optimizer_with_slots_by_path_is_refused() -> None:
    optimizer = keras.optimizers.Muon()
    keras_private.refuse_slots_in_dictionary(optimizer)
    optimizer.__dict__["adam_momentums"] = {"dense/kernel": None}  # as in Keras 3.12
    with raises(UnsupportedError, "keras.optimizers.Muon", received=keras.__version__):
        keras_private.refuse_slots_in_dictionary(optimizer)


def test_the_global_generator_is_found_without_the_constant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keras.random.uniform(())
    found = keras_private.get_global_generator()
    seeds = keras_private.seed_generator
    monkeypatch.delattr(seeds, "GLOBAL_SEED_GENERATOR", raising=False)  # as in Keras 3.12
    assert isinstance(found, keras.random.SeedGenerator)
    assert keras_private.get_global_generator() is found
