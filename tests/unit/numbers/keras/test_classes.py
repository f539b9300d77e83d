"""Each class of Keras's callbacks, layers, losses and metrics, trained with tfps and without."""

from __future__ import annotations

import keras
import pytest

import tfps
from tests.unit.numbers.conftest import Clusters
from tests.unit.numbers.keras import class_page
from tests.unit.numbers.keras.class_programs import (
    MODULES,
    Call,
    Programs,
    calls,
    classes_of,
    groups,
    not_applicable,
)

ADVICE = (
    "of keras.{0} are in no call of {1}: add a call of each below [{0}], at a kind of data that it "
    "is for, or the reason why it is not compared below [{0}.not_applicable]; then run python -m "
    "tests.unit.numbers.keras.class_page"
)


def _name(group: list[Call]) -> str:
    first = group[0]
    what = first.text.partition("(")[0] if first.module == "callbacks" else first.kind
    return f"{first.module}-{what}"


@pytest.mark.parametrize("module", MODULES)
def test_each_class_is_in_the_list(module: str) -> None:
    listed = {name for call in calls() if call.module == module for name in call.names}
    missing = classes_of(module) - listed - set(not_applicable(module))
    assert not missing, f"{sorted(missing)} " + ADVICE.format(module, "classes.toml")


def test_the_page_has_the_list() -> None:
    """Calls of classes that an older Keras lacks stay on the page."""
    rows = class_page.read_rows()
    for module in MODULES:
        texts = {call.text for call in calls() if call.module == module}
        reasons = not_applicable(module)
        assert texts | set(reasons) <= set(rows[module])
        if keras.__version__ in class_page.PAGE.read_text():
            assert set(rows[module]) == texts | set(reasons)
        for name, reason in reasons.items():
            assert rows[module][name] == f"not applicable: {reason}"


@pytest.fixture(scope="module")
def programs(
    cluster: Clusters,
    strategy: tfps.ParameterServerStrategy,
    tmp_path_factory: pytest.TempPathFactory,
) -> Programs:
    several = tfps.ParameterServerStrategy(cluster(workers=2).cluster_resolver)
    return Programs(strategy, several, tmp_path_factory.mktemp("programs"))


@pytest.mark.timeout(600)
@pytest.mark.quick("layers-two_vectors")
@pytest.mark.parametrize("group", groups(), ids=_name)
def test_results_are_those_of_the_page(programs: Programs, group: list[Call]) -> None:
    rows = class_page.read_rows()[group[0].module]
    for call, result in programs.results(group).items():
        assert result == rows[call.text], call
