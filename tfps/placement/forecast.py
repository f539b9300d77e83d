"""What a plan will be, from the variables that a program makes. Pure: no TensorFlow, no server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tfps.partitioners.variable_spec import VariableSpec
from tfps.placement.policy import Placement

# What a parameter server's process takes with TensorFlow and no variable, rounded up.
PROCESS_BYTES = 512 << 20


@dataclass(frozen=True)
class Wanted(VariableSpec):
    """A variable that a program makes, in the order in which it makes them.

    Args:
        path: of Keras.
        shape: fully known.
        dtype: its name.
        rows_per_step: how many rows a step asks for, where it asks for rows only; None: for all.
        beside: the position of the variable that it belongs to, such as the weight of a slot.
        follows: the position of the variable beside which it is moved once all are there, such as
            an optimizer's count of steps.
        is_pulled: workers compute with it, so it travels to them.
        is_trained: they send a gradient for it.
        is_frozen: they would, but for a frozen layer, such as an embedding that was trained before.
    """

    beside: int | None = None
    follows: int | None = None
    is_pulled: bool = False
    is_trained: bool = False
    is_frozen: bool = False

    @property
    def pull_bytes(self) -> int:
        """What a step of one worker asks for."""
        if not self.is_pulled:
            return 0
        if self.rows_per_step is None or not self.shape or not self.shape[0]:
            return self.size_bytes
        return min(self.rows_per_step, self.shape[0]) * self.size_bytes // self.shape[0]

    @property
    def step_bytes(self) -> int:
        """What a step of one worker moves: the value to the worker, and what it sends back.

        What is frozen travels when a worker joins; of a table rows are asked for in each step.
        """
        if self.is_frozen and self.rows_per_step is None:
            return 0
        return (1 if self.is_frozen else 2) * self.pull_bytes


@dataclass(frozen=True)
class Forecast:
    """Which server takes which variable.

    Args:
        servers: how many.
        wanted: the variables.
        places: the server of each.
        activation_bytes: the most that a layer hands to the next in a step; None: not known.

    Example:

    >>> from tfps.placement import LeastLoaded
    >>> kernel = Wanted("dense/kernel", (784, 128), "float32", is_pulled=True, is_trained=True)
    >>> bias = Wanted("dense/bias", (128,), "float32", is_pulled=True, is_trained=True)
    >>> momentum = Wanted("sgd/kernel_momentum", (784, 128), "float32", beside=0)
    >>> forecast = Forecast.of([kernel, bias, momentum], servers=2, placement=LeastLoaded())
    >>> forecast.places
    (0, 1, 0)
    >>> forecast.bytes_per_server
    (802816, 512)
    """

    servers: int
    wanted: tuple[Wanted, ...]
    places: tuple[int, ...]
    activation_bytes: int | None = None

    @classmethod
    def of(cls, wanted: Sequence[Wanted], *, servers: int, placement: Placement) -> Forecast:
        """Ask a policy for each variable, as a strategy does when the variable is made."""
        loads = [0] * servers
        places: list[int] = []
        for number, variable in enumerate(wanted):
            if variable.beside is not None:
                server = places[variable.beside]
            else:
                server = placement.choose(
                    variable, bytes_per_server=tuple(loads), variables_placed=number
                )
            places.append(server)
            loads[server] += variable.size_bytes
        homes = [
            place if variable.follows is None else places[variable.follows]
            for variable, place in zip(wanted, places, strict=True)
        ]
        return cls(servers, tuple(wanted), tuple(homes))

    @property
    def bytes_per_server(self) -> tuple[int, ...]:
        """Values and slots."""
        return self._totals([variable.size_bytes for variable in self.wanted])

    @property
    def step_bytes_per_server(self) -> tuple[int, ...]:
        """What a step of one worker moves to and from each."""
        return self._totals([variable.step_bytes for variable in self.wanted])

    def memory_bytes_per_server(self, *, workers: int, has_rounds: bool) -> tuple[int, ...]:
        """What each server's process will need at least.

        The process, its variables, a request and a reply of every worker at once, and, where rounds
        are applied as one, the sums of their gradients.

        Args:
            workers: that exchange with it.
            has_rounds: of synchronous modes.
        """
        pulled = self._totals([v.pull_bytes for v in self.wanted])
        sent = [v.pull_bytes if v.is_trained else 0 for v in self.wanted]
        sums = [min(v.size_bytes, _round_bytes(v, workers=workers)) for v in self.wanted]
        return tuple(
            PROCESS_BYTES + held + workers * (replies + requests) + (rounds if has_rounds else 0)
            for held, replies, requests, rounds in zip(
                self.bytes_per_server, pulled, self._totals(sent), self._totals(sums), strict=True
            )
        )

    def with_whole_tables(self) -> Forecast:
        """The same in a mode in which no rows travel."""
        return replace(self, wanted=tuple(replace(v, rows_per_step=None) for v in self.wanted))

    def beside(self) -> tuple[int, ...]:
        """Bytes of what belongs to each variable."""
        totals = [0] * len(self.wanted)
        for variable in self.wanted:
            if variable.beside is not None:
                totals[variable.beside] += variable.size_bytes
        return tuple(totals)

    def _totals(self, sizes: Sequence[int]) -> tuple[int, ...]:
        totals = [0] * self.servers
        for server, size in zip(self.places, sizes, strict=True):
            totals[server] += size
        return tuple(totals)


def _round_bytes(variable: Wanted, *, workers: int) -> int:
    """What the sum of a round has; of a table a row for each that came."""
    if not variable.is_trained:
        return 0
    return variable.pull_bytes * (1 if variable.rows_per_step is None else workers)


def imbalance(totals: Sequence[int]) -> float:
    """The largest over the mean; 1.0 is perfect, and that of nothing.

    Example:

    >>> imbalance([30, 10])
    1.5
    """
    mean = sum(totals) / len(totals)
    return max(totals) / mean if mean else 1.0
