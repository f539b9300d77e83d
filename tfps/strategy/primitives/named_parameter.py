"""The variables of a strategy's scope, by the names that users know."""

from __future__ import annotations

import difflib
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from tfps.bridge.variables.server_variable import ServerVariable
from tfps.errors import ConfigError

MAX_SIMILAR_NAMES = 3  # that an error suggests


class NamedParameter:
    """A variable on a server, with the name that the user knows.

    Args:
        path: the path of a Keras variable, or the name of a raw one.
        variable: the Keras variable, or the raw one.
    """

    def __init__(self, path: str, variable: Any) -> None:
        native = getattr(variable, "_value", variable)
        self.path = path
        self.keras_variable = variable if native is not variable else None
        self._value = (
            native if isinstance(native, ServerVariable) else ServerVariable.attach(native)
        )
        self.shape, self.trainable = tuple(self._value.shape), native.trainable


class NamedParameters:
    """Keeps weak references to the variables that were created in a strategy's scope."""

    def __init__(self) -> None:
        self._variables: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()

    def register(self, name: str, variable: Any) -> None:
        """Add a variable that was created in the strategy's scope."""
        self._variables[name.removesuffix(":0")] = variable

    @property
    def by_name(self) -> Mapping[str, Any]:
        """The variables, by name."""
        return self._variables

    @property
    def names(self) -> list[str]:
        """The names of all variables, sorted."""
        return sorted(self._variables)

    def find(self, names: Iterable[str]) -> list[NamedParameter]:
        """Return the parameters with these names.

        Raises:
            ConfigError: no variable of the scope has one of the names.
        """
        chosen = list(names)
        unknown = [name for name in chosen if name not in self._variables]
        if unknown:
            raise ConfigError(
                f"name: received {unknown}, expected variables of the strategy's scope; "
                f"{self._name_hint(unknown)}"
            )
        return [NamedParameter(name, self._variables[name]) for name in chosen]

    def _name_hint(self, unknown: Iterable[str]) -> str:
        """Return a hint: similar names, or all names if none is similar."""
        names = self.names
        near = {
            name: None
            for each in unknown
            for name in difflib.get_close_matches(str(each), names, n=MAX_SIMILAR_NAMES)
        }
        hint = f"did you mean {' or '.join(map(repr, near))}?"
        return hint if near else f"the scope has {names}"
