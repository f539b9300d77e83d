"""The tables of docs/reference are complete: each variable, key, field, error and public name."""

from __future__ import annotations

import ast
import dataclasses
import gc
import importlib
import inspect
import json
import re
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import tfps
from tests.integration.project import pages
from tests.integration.project.pages import ROOT
from tfps import errors
from tfps.bridge import keras_patches
from tfps.cluster.proxies import EXCLUSIONS
from tfps.config import parse
from tfps.strategy.reading.stats import Stats

FOLDER = "docs/reference"
# Variables that a process writes for others or for itself; users do not set them for tfps.
OF_EXAMPLES = {"TFPS_NO_SUCH_VARIABLE"}
PREFIXES = ("TFPS_", "TF_", "KERAS_", "CUDA_", "GRPC_")
WRITTEN_BY_TENSORFLOW = {
    "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE",
    "TF_PS_DISABLE_ASYNC_EXECUTOR_GLOBALLY",
}


def _rows(page: str) -> dict[str, list[str]]:
    """Return the rows of all tables of a page, by the code in their first column."""
    text = pages.text_of(f"{FOLDER}/{page}.md")
    rows = (re.split(r" +\| +", line.strip("| ")) for line in re.findall(r"^\| `.*", text, re.M))
    return {cells[0].strip("`"): cells[1:] for cells in rows}


def _syntax_tree(path: Path) -> ast.Module:
    """Parse a file while garbage collection is off.

    Python 3.11 raises "AST constructor recursion depth mismatch" where a finalizer that runs in the
    middle of it (of a cluster before this test) lets another thread parse something as well.
    """
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.enable()


def _texts() -> Iterator[str]:
    """Return every string in the library's code, without docstrings and comments."""
    for path in (ROOT / "tfps").rglob("*.py"):
        for node in ast.walk(_syntax_tree(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_each_environment_variable_is_in_the_table() -> None:
    read = {text for text in _texts() if re.fullmatch(r"[A-Z][A-Z0-9_]+", text) and "_" in text}
    read = {text for text in read if text.startswith(PREFIXES) and not text.endswith("_")}
    listed = set(_rows("environment"))
    assert {"TFPS_TRANSPORT", "TF_CONFIG", "TFPS_TLS_KEY"} <= read
    assert read - OF_EXAMPLES - WRITTEN_BY_TENSORFLOW - listed == set()
    # These two are TensorFlow's own, and matter to users of tfps.
    assert listed - read - {*EXCLUSIONS} == {"TF_USE_LEGACY_KERAS", "TF_CPP_MIN_LOG_LEVEL"}


def _leaves(values: Mapping[str, Any], parent: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{parent}{name}.")
        else:
            yield f"{parent}{name}", value


def _defaults_shown(part: str) -> dict[str, Any]:
    rows = (row.strip("| ").split(" | ") for row in re.findall(r"^\| `.*", part, re.M))
    shown = {row[0].strip("` "): row[1].strip() for row in rows}
    return {
        key: None if default == "none" else json.loads(default.strip("`"))
        for key, default in shown.items()
        if not default.startswith("as ")
    }


def test_each_key_of_a_job_file_is_in_the_table_with_its_default() -> None:
    page = pages.text_of(f"{FOLDER}/job-file.md")
    first, second = page.split("## Keys of the recommender")
    defaults = dict(_leaves(parse({}).model_dump(mode="json")))
    assert _defaults_shown(first) == defaults
    others = dict(_leaves(parse({"example": "recommender"}).model_dump(mode="json")))
    assert "| `data.table_rows` | as Criteo's, 20,000,000 in all |" in second
    assert sum(others.pop("data.table_rows")) == 20_000_000
    own = {
        key: value
        for key, value in others.items()
        if key.startswith(("model.", "data.")) or value != defaults[key]
    }
    own.pop("example", None)
    assert _defaults_shown(second) == own


def test_each_field_of_stats_is_in_the_table_with_a_unit() -> None:
    fields = {field.name for field in dataclasses.fields(Stats)}
    rows = _rows("stats")
    assert set(rows) == fields
    assert all(len(cells) == 2 and all(cells) for cells in rows.values())


def test_each_error_is_in_the_table_with_what_it_is() -> None:
    classes = {
        name: kind
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and kind.__module__ == errors.__name__
    }
    rows = {name: cells for name, cells in _rows("errors").items() if name in classes}
    assert set(rows) == set(classes)
    for name, (bases, _) in rows.items():
        shown = set(re.findall(r"`(\w+)`", bases))
        assert shown == {base.__name__ for base in classes[name].__bases__} - {"TfpsError"}, name


def _public_names(module: types.ModuleType) -> list[str]:
    names = getattr(module, "__all__", None)
    if names is None:
        return [
            name
            for name, kind in vars(module).items()
            if inspect.isclass(kind) and kind.__module__ == module.__name__
        ]
    return [name for name in names if not inspect.ismodule(getattr(module, name))]


def test_each_public_name_is_listed_as_its_documentation_begins() -> None:
    modules = ["tfps", *(f"tfps.{name}" for name in dir(tfps) if inspect.ismodule(_of_tfps(name)))]
    expected = {}
    for module in map(importlib.import_module, modules):
        for name in _public_names(module):
            value = getattr(module, name)
            first = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
            file = inspect.getsourcefile(inspect.unwrap(value))
            expected[f"{module.__name__}.{name}"] = (first, file)
    shown = {
        name: (sentence, str((ROOT / FOLDER / re.findall(r"\((.*)\)", link)[0]).resolve()))
        for name, (sentence, link) in _rows("api").items()
    }
    assert shown == expected


def _of_tfps(name: str) -> Any:
    return getattr(tfps, name)


@pytest.mark.parametrize("owner", ["TensorFlowTrainer", "CallbackList", "Embedding"])
def test_what_is_replaced_in_keras_is_listed(owner: str) -> None:
    """The page lists the methods that the patches wrap, and the three classes."""
    source = inspect.getsource(keras_patches)
    page = pages.text_of(f"{FOLDER}/replaced.md")
    wrapped = set(re.findall(r'_wrap\([\w.]+, "(\w+)"', source))
    assert len(wrapped) > 8
    assert [name for name in wrapped if f"{name}`" not in page] == []
    assert owner in page


def test_what_is_replaced_in_tensorflow_is_listed() -> None:
    """The page lists the assignments to names of TensorFlow's own classes and modules."""
    owners = (
        r"(?:Context|TrackableSaveable|polymorphic_function\.Function|cluster_coordinator|kind)"
    )
    bridge = "".join(path.read_text() for path in (ROOT / "tfps/bridge").rglob("*.py"))
    replaced = set(re.findall(rf"^ +{owners}\.(\w+) = ", bridge, re.M))
    replaced = {name for name in replaced if not name.startswith("_tfps_")}
    assert {"update_server_def", "restore", "__call__", "_CoordinatedClosureQueue"} <= replaced
    page = pages.text_of(f"{FOLDER}/replaced.md").partition("## In TensorFlow")[2]
    assert [name for name in replaced if f"{name}`" not in page] == []
