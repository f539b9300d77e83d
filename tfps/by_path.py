"""A choice for each variable, by its path."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tfps.errors import refuse

ChoiceT = TypeVar("ChoiceT")


@dataclass(frozen=True)
class ByPath(ABC, Generic[ChoiceT]):
    """The first pattern that is found in a variable's path decides.

    The base of those for codecs, partitioners and servers.

    Args:
        rules: a regular expression to a choice.
        otherwise: for variables in whose path no pattern is found.

    Raises:
        ConfigError: no regular expressions, or no choices.
    """

    rules: Mapping[str, ChoiceT]
    otherwise: ChoiceT

    def __post_init__(self) -> None:
        refuse(self.problems(), source="ByPath")

    @abstractmethod
    def expected(self, choice: Any, *, is_rule: bool) -> str:
        """Return the end of "expected ...", or nothing where the choice is one.

        Args:
            choice: whatever was passed.
            is_rule: false for `otherwise`.
        """

    def problems(self) -> list[str]:
        """Return a sentence for each mistake."""
        problems = []
        for rule in self.rules:
            try:
                re.compile(rule)
            except re.error as error:
                problems.append(f"{rule!r}: received no regular expression ({error}), expected one")
        choices = [(repr(rule), choice, True) for rule, choice in self.rules.items()]
        for name, choice, is_rule in [*choices, ("otherwise", self.otherwise, False)]:
            if expected := self.expected(choice, is_rule=is_rule):
                problems.append(f"{name}: received {choice!r}, expected {expected}")
        return problems

    def found_in(self, path: str) -> tuple[str, ChoiceT]:
        """Return the pattern that decides, or ``"otherwise"``, and what it chooses."""
        found = (each for each in self.rules.items() if re.search(each[0], path))
        return next(found, ("otherwise", self.otherwise))
