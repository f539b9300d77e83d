"""The table of TensorFlow's own tests names tests that exist, and all of TensorFlow's."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
TABLE = TESTS / "cluster" / "upstream" / "README.md"

# Of TensorFlow v2.21.0: the tests that each class of the two files defines.
UPSTREAM = {
    "ParameterServerStrategyV2Test": 8,
    "VariablePartitioningTest": 13,
    "ClusterTypeNameTest": 5,
    "CoordinatedClosureQueueTest": 12,
    "CoordinatorContextTest": 1,
    "ClusterCoordinatorTest": 16,
    "ErrorReportingTest": 9,
    "ShardedVariableTest": 1,
    "StrategyIntegrationTest": 14,
}
INHERITED = {"ClusterCoordinatorTest": 2, "ErrorReportingTest": 1}  # by how many classes


def _rows() -> list[tuple[str, str, str]]:
    """(class, test, ours) of every row."""
    return re.findall(r"^\| (\w+)\.(test\w+) \| (\S+) \|$", TABLE.read_text(), re.MULTILINE)


@cache
def _functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_every_test_that_is_named_exists() -> None:
    for _, _, ours in _rows():
        name, _, function = ours.partition("::")
        path = TESTS / name if "/" in name else TABLE.parent / name
        assert path.is_file(), ours
        assert function in _functions(path), ours


def test_the_table_is_complete() -> None:
    rows = _rows()
    assert len({(kind, test) for kind, test, _ in rows}) == len(rows)
    assert len(rows) == TABLE.read_text().count("\n| ") - TABLE.read_text().count("\n| upstream")
    assert Counter(kind for kind, _, _ in rows) == UPSTREAM


def test_the_totals_are_upstreams() -> None:
    strategy = sum(list(UPSTREAM.values())[:3])
    coordinator = sum(UPSTREAM.values()) - strategy
    inherited = sum(UPSTREAM[kind] * classes for kind, classes in INHERITED.items())
    text = TABLE.read_text()
    assert f"## parameter_server_strategy_v2_test: {strategy} tests" in text
    assert (
        f"## cluster_coordinator_test: {coordinator} tests, {coordinator + inherited} with" in text
    )
