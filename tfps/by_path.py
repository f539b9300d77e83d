"""The base class of choices by the paths of variables."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tfps.errors import refuse

ChoiceT = TypeVar("ChoiceT")


@dataclass(frozen=True)
class PathRules(ABC, Generic[ChoiceT]):
    """Chooses by the first pattern that is found in a variable's path.

    It is the base class of those for codecs, partitioners and servers.

    Args:
        rules: choices by regular expression.
        otherwise: the choice for variables whose path matches no pattern.

    Raises:
        ConfigError: a pattern or a choice is invalid.
    """

    rules: Mapping[str, ChoiceT]
    otherwise: ChoiceT

    def __post_init__(self) -> None:
        refuse(self.problems(), source="ByPath")

    @abstractmethod
    def describe_expected(self, choice: Any, *, is_rule: bool) -> str:
        """Return the end of the message "expected ..."; empty if the choice is valid.

        Args:
            choice: the value that was passed.
            is_rule: false for `otherwise`.
        """

    def problems(self) -> list[str]:
        """Return a sentence for each mistake."""
        problems = []
        for rule in self.rules:
            try:
                re.compile(rule)
            except re.error as error:
                problems.append(
                    f"{rule!r}: received an invalid pattern ({error}), "
                    "expected a regular expression"
                )
        choices = [(repr(rule), choice, True) for rule, choice in self.rules.items()]
        for name, choice, is_rule in [*choices, ("otherwise", self.otherwise, False)]:
            if expected := self.describe_expected(choice, is_rule=is_rule):
                problems.append(f"{name}: received {choice!r}, expected {expected}")
        return problems

    def found_in(self, path: str) -> tuple[str, ChoiceT]:
        """Return the pattern that matches a path, or ``"otherwise"``, and its choice."""
        matches = (each for each in self.rules.items() if re.search(each[0], path))
        return next(matches, ("otherwise", self.otherwise))
