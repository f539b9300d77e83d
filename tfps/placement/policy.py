"""Placement policies: which server takes the next variable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from tfps.by_path import PathRules
from tfps.errors import ConfigError
from tfps.partitioners.variable_spec import VariableSpec


@runtime_checkable
class Placement(Protocol):
    """Chooses a server for each variable, from the bytes that the servers hold already.

    Pass it as ``placement`` of a `tfps.ParameterServerStrategy`; implement it for a policy of your
    own. It is called once for each variable or shard, but not for variables that belong to another
    one, such as an optimizer's slots: they are placed on the server of that variable.

    Example:

    >>> class LastServer:
    ...     def choose(self, variable, *, bytes_per_server, variables_placed):
    ...         return len(bytes_per_server) - 1
    >>> isinstance(LastServer(), Placement)
    True
    """

    def choose(
        self, variable: VariableSpec, *, bytes_per_server: Sequence[int], variables_placed: int
    ) -> int:
        """Return the index of the server that takes the variable.

        Args:
            variable: the path, shape and dtype of the variable or shard.
            bytes_per_server: the bytes that each server holds already.
            variables_placed: the number of variables and shards that have a server already.
        """


@dataclass(frozen=True)
class LeastLoaded:
    """Chooses the server with the fewest bytes, the first of equal ones; the default placement.

    For variables of equal size this is TensorFlow's round-robin; for others it keeps a few large
    variables from sharing one server (tensorflow#45291).

    Example:

    >>> kernel = VariableSpec("dense/kernel", (100,))
    >>> LeastLoaded().choose(kernel, bytes_per_server=[400, 12], variables_placed=2)
    1
    """

    def choose(
        self, variable: VariableSpec, *, bytes_per_server: Sequence[int], variables_placed: int
    ) -> int:
        return min(range(len(bytes_per_server)), key=lambda server: bytes_per_server[server])


@dataclass(frozen=True)
class RoundRobin:
    """Chooses one server after the other, as `tf.distribute.ParameterServerStrategy` does.

    Use it to get TensorFlow's placement.

    Example:

    >>> kernel = VariableSpec("dense/kernel", (100,))
    >>> RoundRobin().choose(kernel, bytes_per_server=[400, 12], variables_placed=2)
    0
    """

    def choose(
        self, variable: VariableSpec, *, bytes_per_server: Sequence[int], variables_placed: int
    ) -> int:
        return variables_placed % len(bytes_per_server)


@dataclass(frozen=True)
class AllReduce:
    """Chooses a home by another policy for weights that workers mirror, and train by all-reduce.

    Use it for the dense weights of a model with large tables, where the links to the servers are
    slow: each worker trains a copy, workers add up their gradients among themselves, and servers
    get the rows of tables only. The home on a server is written whenever workers rest, at the end
    of an epoch for example, so that saving, evaluating and reading weights stay as they are. It
    needs ``consistency=tfps.Synchronous()`` and `model.fit`; scheduled functions train the home.

    Args:
        home: the policy, or its name, that chooses the server with the home.

    Raises:
        ConfigError: ``home`` is no policy, or mirrors as well.

    Example:

    >>> placement = ByPath({"embedding": "least_loaded"}, otherwise=AllReduce())
    >>> [is_mirrored(placement, path) for path in ("dense/kernel", "embedding/embeddings")]
    [True, False]
    """

    home: Placement | str = LeastLoaded()

    def __post_init__(self) -> None:
        if not _is_choice(self.home) or mirrors_any(self.home):
            raise ConfigError(
                f"home: received {self.home!r}, expected a policy that chooses a server, such as "
                "'least_loaded'",
                source="AllReduce",
            )

    def choose(
        self, variable: VariableSpec, *, bytes_per_server: Sequence[int], variables_placed: int
    ) -> int:
        return resolve(self.home).choose(
            variable, bytes_per_server=bytes_per_server, variables_placed=variables_placed
        )


@dataclass(frozen=True)
class ByPath(PathRules[int | Placement | str]):
    """Chooses the server by the first pattern that is found in a variable's path.

    Use it if a table needs a machine of its own, or two towers must not share a server.

    Args:
        rules: the index of a server, a policy or a policy's name, by regular expression.
        otherwise: a policy, or its name, for variables whose path matches no pattern.

    Raises:
        ConfigError: a pattern, an index or a policy is invalid.

    Example:

    >>> placement = ByPath({"embedding/": 1, "^tower_b/": RoundRobin()})
    >>> table = VariableSpec("model/embedding/embeddings", (1000,))
    >>> placement.choose(table, bytes_per_server=[0, 9000], variables_placed=0)
    1
    """

    otherwise: Placement | str = LeastLoaded()

    def describe_expected(self, choice: Any, *, is_rule: bool) -> str:
        is_index = isinstance(choice, int) and not isinstance(choice, bool) and choice >= 0
        if _is_choice(choice) or (is_rule and is_index):
            return ""
        return f"the index of a server, from 0, or {EXPECTED}" if is_rule else EXPECTED

    def choose(
        self, variable: VariableSpec, *, bytes_per_server: Sequence[int], variables_placed: int
    ) -> int:
        _, target = self.found_in(variable.path)
        if isinstance(target, int):
            return target
        return resolve(target).choose(
            variable, bytes_per_server=bytes_per_server, variables_placed=variables_placed
        )


def is_mirrored(placement: Placement | str | int, path: str) -> bool:
    """Return whether workers mirror the variable of a path."""
    if isinstance(placement, ByPath):
        return is_mirrored(placement.found_in(path)[1], path)
    return isinstance(placement, AllReduce) or placement == "all_reduce"


def mirrors_any(placement: Placement | str | int) -> bool:
    """Return whether workers may mirror any variable."""
    if isinstance(placement, ByPath):
        return any(map(mirrors_any, [*placement.rules.values(), placement.otherwise]))
    return isinstance(placement, AllReduce) or placement == "all_reduce"


def server_problems(placement: Placement | str, *, servers: int, source: str = "") -> list[str]:
    """Return a sentence for each rule that names a server that a cluster does not have.

    Args:
        placement: the policy.
        servers: the number of servers.
        source: the origin of this number, for the message; may be empty.
    """
    if isinstance(placement, AllReduce):
        return server_problems(placement.home, servers=servers, source=source)
    if not isinstance(placement, ByPath):
        return []
    there = f"{servers} parameter servers" + (f" of {source}" if source else "")
    problems = [
        f"received server {target} for {rule!r} with {there}; expected 0 to {servers - 1}"
        for rule, target in placement.rules.items()
        if isinstance(target, int) and target >= servers
    ]
    inner = [*placement.rules.values(), placement.otherwise]
    policies = [policy for policy in inner if not isinstance(policy, int)]
    return problems + [
        problem
        for each in policies
        for problem in server_problems(each, servers=servers, source=source)
    ]


ALIASES: Mapping[str, Callable[[], Placement]] = {
    "least_loaded": LeastLoaded,
    "round_robin": RoundRobin,
    "all_reduce": AllReduce,
}
EXPECTED = f"an object with a method choose() or one of {', '.join(map(repr, ALIASES))}"


def resolve(placement: Placement | str | None) -> Placement:
    """Return a policy given as itself, its alias or None (`LeastLoaded`).

    Raises:
        ConfigError: it is neither a policy nor a known alias.
    """
    if placement is None:
        return LeastLoaded()
    if isinstance(placement, str) and placement in ALIASES:
        return ALIASES[placement]()
    if _is_policy(placement):
        assert isinstance(placement, Placement)
        return placement
    raise ConfigError(f"placement: received {placement!r}, expected {EXPECTED}")


def _is_choice(value: Any) -> bool:
    """Return whether a value is a policy, or the name of one."""
    return _is_policy(value) or (isinstance(value, str) and value in ALIASES)


def _is_policy(value: Any) -> bool:
    return not isinstance(value, (str, type)) and isinstance(value, Placement)
