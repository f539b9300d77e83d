"""Variables on servers, under the names that users know them by."""

from __future__ import annotations

import difflib
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from tfps.bridge.variables.server_variable import ServerVariable
from tfps.errors import ConfigError

NEAR_NAMES = 3  # that an error suggests


class NamedParameter:
    """A variable on a server under the name that the user knows it by.

    Args:
        path: of a Keras variable, or the name of a raw one.
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
    """The variables that were created in a strategy's scope, as long as they live."""

    def __init__(self) -> None:
        self._known: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()

    def register(self, name: str, variable: Any) -> None:
        """Note a variable that was created in the strategy's scope."""
        self._known[name.removesuffix(":0")] = variable

    @property
    def known(self) -> Mapping[str, Any]:
        """The variables by name."""
        return self._known

    @property
    def names(self) -> list[str]:
        """All names there are."""
        return sorted(self._known)

    def named(self, names: Iterable[str]) -> list[NamedParameter]:
        """The parameters of these names.

        Raises:
            ConfigError: a name that no variable of the scope has.
        """
        chosen = list(names)
        unknown = [name for name in chosen if name not in self._known]
        if unknown:
            raise ConfigError(
                f"the strategy's scope has no variable {unknown}; {self._advice(unknown)}"
            )
        return [NamedParameter(name, self._known[name]) for name in chosen]

    def _advice(self, unknown: Iterable[str]) -> str:
        """What could have been meant, or all names where nothing is near."""
        names = self.names
        near = {
            name: None
            for each in unknown
            for name in difflib.get_close_matches(str(each), names, n=NEAR_NAMES)
        }
        return f"did you mean {' or '.join(map(repr, near))}?" if near else f"it has {names}"
