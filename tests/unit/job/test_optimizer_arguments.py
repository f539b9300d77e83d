"""What Keras says of an optimizer's arguments, asked in a process of its own."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tfps.config.schema import OptimizerSection
from tfps.job import optimizer_arguments
from tfps.job.optimizer import argument_problems
from tfps.job.optimizer_arguments import argument_problems_elsewhere


def _section(**arguments: Any) -> OptimizerSection:
    return OptimizerSection.model_validate(arguments)


@pytest.mark.slow
def test_it_says_what_keras_says_here() -> None:
    section = _section(name="adam", beta1=0.9, weight_decay=0.1, colour=[1, "two", {"x": 3.5}])
    problems = argument_problems_elsewhere(section)
    assert problems == argument_problems(section)
    assert len(problems) == 2
    assert problems[0].startswith("training.optimizer.beta1: Adam has no such argument; did you")


def test_nothing_is_started_without_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer_arguments, "COMMAND", ("no-such-program",))
    assert argument_problems_elsewhere(_section(name="sgd")) == []


def test_where_that_process_fails_the_chief_will_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        optimizer_arguments, "COMMAND", (sys.executable, "-c", "raise SystemExit(3)")
    )
    assert argument_problems_elsewhere(_section(name="sgd", nesterov=True)) == []
