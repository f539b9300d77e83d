"""Forecasts the plan of a job from the variables of its program. Pure: no TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tfps.partitioners.variable_spec import VariableSpec
from tfps.placement.policy import Placement, is_mirrored

# The memory of a parameter server's process with TensorFlow but no variable, rounded up.
PROCESS_BYTES = 512 << 20


@dataclass(frozen=True)
class PlannedVariable(VariableSpec):
    """A variable that a program makes, in a list that has the program's order.

    Args:
        path: the Keras path.
        shape: the shape, fully known.
        dtype: the dtype's name.
        rows_per_step: the number of rows that a step looks up; None: it reads all.
        owner: the position of the variable that it belongs to, such as the weight of a slot.
        moved_beside: the position of the variable beside which it is moved once all are made, such
            as for an optimizer's count of steps.
        is_pulled: whether workers pull it, to compute with it.
        is_trained: whether workers push a gradient for it.
        is_frozen: whether it is a weight of a frozen layer, such as a pretrained embedding.
        is_mirrored: whether each worker trains a copy, by all-reduce; the server has its home.
        worker_copies: the number of copies that its server stores for workers, such as momenta, if
            gradients are applied one by one.
    """

    owner: int | None = None
    moved_beside: int | None = None
    is_pulled: bool = False
    is_trained: bool = False
    is_frozen: bool = False
    is_mirrored: bool = False
    worker_copies: int = 0

    @property
    def pull_bytes(self) -> int:
        """The bytes that a step of one worker pulls."""
        if not self.is_pulled:
            return 0
        if self.rows_per_step is None or not self.shape or not self.shape[0]:
            return self.size_bytes
        return min(self.rows_per_step, self.shape[0]) * self.size_bytes // self.shape[0]

    @property
    def step_bytes(self) -> int:
        """The bytes that a step of one worker pulls and pushes.

        A frozen variable is pulled when a worker joins, and so is a mirrored one; rows of a table
        are pulled in each step.
        """
        if self.is_mirrored:
            return 0
        if self.is_frozen and self.rows_per_step is None:
            return 0
        return (1 if self.is_frozen else 2) * self.pull_bytes


@dataclass(frozen=True)
class Forecast:
    """A forecast of which server takes which variable.

    Args:
        server_count: the number of servers.
        variables: the variables.
        server_of_variable: the server of each variable.
        activation_bytes: the largest output of a layer in a step; None: not known.

    Example:

    >>> from tfps.placement import LeastLoaded
    >>> kernel = PlannedVariable("kernel", (784, 128), "float32", is_pulled=True, is_trained=True)
    >>> bias = PlannedVariable("dense/bias", (128,), "float32", is_pulled=True, is_trained=True)
    >>> momentum = PlannedVariable("sgd/kernel_momentum", (784, 128), "float32", owner=0)
    >>> wanted = [kernel, bias, momentum]
    >>> forecast = Forecast.from_variables(wanted, servers=2, placement=LeastLoaded())
    >>> forecast.server_of_variable
    (0, 1, 0)
    >>> forecast.bytes_per_server
    (802816, 512)
    """

    server_count: int
    variables: tuple[PlannedVariable, ...]
    server_of_variable: tuple[int, ...]
    activation_bytes: int | None = None

    @classmethod
    def from_variables(
        cls, variables: Sequence[PlannedVariable], *, servers: int, placement: Placement
    ) -> Forecast:
        """Place each variable by a policy, as a strategy does when it makes the variable."""
        loads = [0] * servers
        places: list[int] = []
        for number, variable in enumerate(variables):
            if variable.owner is not None:
                server = places[variable.owner]
            else:
                server = placement.choose(
                    variable, bytes_per_server=tuple(loads), variables_placed=number
                )
            places.append(server)
            loads[server] += variable.size_bytes
        homes = [
            place if variable.moved_beside is None else places[variable.moved_beside]
            for variable, place in zip(variables, places, strict=True)
        ]
        mirrored = [
            replace(v, is_mirrored=v.is_trained and is_mirrored(placement, v.path))
            for v in variables
        ]
        return cls(servers, tuple(mirrored), tuple(homes))

    @property
    def mirrored_bytes(self) -> int:
        """The bytes of the weights that each worker trains, and of their slots."""
        pairs = zip(self.variables, self.slot_bytes(), strict=True)
        return sum(v.size_bytes + slots for v, slots in pairs if v.is_mirrored)

    @property
    def bytes_per_server(self) -> tuple[int, ...]:
        """The bytes of values and slots on each server."""
        return self._totals([variable.size_bytes for variable in self.variables])

    @property
    def step_bytes_per_server(self) -> tuple[int, ...]:
        """The bytes that a step of one worker exchanges with each server."""
        return self._totals([variable.step_bytes for variable in self.variables])

    def memory_bytes_per_server(self, *, workers: int, has_rounds: bool) -> tuple[int, ...]:
        """Return the least memory of each server's process.

        It consists of the process, its variables, a request and a reply of every worker at once,
        and, if gradients are applied in rounds, their sums, else the copies for workers.

        Args:
            workers: the number of workers.
            has_rounds: whether gradients are applied in rounds, as in synchronous modes.
        """
        pull_bytes = self._totals([v.pull_bytes for v in self.variables])
        push_bytes = self._totals([v.pull_bytes if v.is_trained else 0 for v in self.variables])
        extra_bytes = [
            min(v.size_bytes, _round_sum_bytes(v, workers=workers))
            if has_rounds
            else v.worker_copies * v.size_bytes
            for v in self.variables
        ]
        return tuple(
            PROCESS_BYTES + held + workers * (replies + requests) + extra
            for held, replies, requests, extra in zip(
                self.bytes_per_server,
                pull_bytes,
                push_bytes,
                self._totals(extra_bytes),
                strict=True,
            )
        )

    def with_whole_tables(self) -> Forecast:
        """Return the forecast for a mode in which workers pull whole tables."""
        return replace(
            self, variables=tuple(replace(v, rows_per_step=None) for v in self.variables)
        )

    def slot_bytes(self) -> tuple[int, ...]:
        """Return the bytes of the slots that belong to each variable."""
        totals = [0] * len(self.variables)
        for variable in self.variables:
            if variable.owner is not None:
                totals[variable.owner] += variable.size_bytes
        return tuple(totals)

    def _totals(self, sizes: Sequence[int]) -> tuple[int, ...]:
        totals = [0] * self.server_count
        for server, size in zip(self.server_of_variable, sizes, strict=True):
            totals[server] += size
        return tuple(totals)


def _round_sum_bytes(variable: PlannedVariable, *, workers: int) -> int:
    """Return the bytes of a round's sum of gradients; for a table, of all rows that it receives."""
    if not variable.is_trained:
        return 0
    return variable.pull_bytes * (1 if variable.rows_per_step is None else workers)


def imbalance(totals: Sequence[int]) -> float:
    """Return the largest number over the mean; 1.0 is perfect, also if all are 0.

    Example:

    >>> imbalance([30, 10])
    1.5
    """
    mean = sum(totals) / len(totals)
    return max(totals) / mean if mean else 1.0
