"""The sizes of a job that the choice of a strategy depends on. Pure: no TensorFlow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tfps.placement.forecast import Forecast, PlannedVariable
from tfps.placement.step_rows import whole_path


@dataclass(frozen=True, kw_only=True)
class JobSizes:
    """The sums over a job's variables, in bytes; sizes of a step are those of one worker.

    Args:
        workers: the number of workers.
        servers: the number of servers.
        dense_bytes: the weights that a step reads as a whole.
        gradient_bytes: the gradients of these weights.
        slot_bytes: the optimizer's slots of these weights, and all other state.
        table_bytes: the weights of which a step reads rows.
        table_slot_bytes: the optimizer's slots of these tables.
        row_bytes: the rows that a step reads.
        largest_table_bytes: the weights of the largest table.
        largest_bytes: the largest variable with its slots.
        step_bytes: the traffic of a step between a worker and all servers.
        left_out_bytes: the part of this traffic that tfps's codecs save.
        server_bytes: the memory of the fullest server's process.
        round_server_bytes: the same if gradients are applied in rounds.
        activation_bytes: the largest output of a layer; None: not known.
        period_steps: the number of steps between two exchanges of local steps.
    """

    workers: int
    servers: int
    dense_bytes: int = 0
    gradient_bytes: int = 0
    slot_bytes: int = 0
    table_bytes: int = 0
    table_slot_bytes: int = 0
    row_bytes: int = 0
    largest_table_bytes: int = 0
    largest_bytes: int = 0
    step_bytes: int = 0
    left_out_bytes: int = 0
    server_bytes: int = 0
    round_server_bytes: int = 0
    activation_bytes: int | None = None
    period_steps: int = 16

    @classmethod
    def from_forecast(
        cls, forecast: Forecast, *, workers: int, period_steps: int, left_out_bytes: int = 0
    ) -> JobSizes:
        """Return the sizes of a forecast in which workers pull only rows of tables.

        Args:
            forecast: which server takes which variable.
            workers: the number of workers.
            period_steps: the number of steps between two exchanges of local steps.
            left_out_bytes: the bytes of a step that codecs save.
        """
        variables = forecast.variables
        is_table = [_find_owner(v, variables).rows_per_step is not None for v in variables]
        tables = [v for v, of_table in zip(variables, is_table, strict=True) if of_table]
        dense = [v for v, of_table in zip(variables, is_table, strict=True) if not of_table]
        whole, whole_tables = Counter[str](), Counter[str]()
        for variable in variables:
            path = whole_path(_find_owner(variable, variables).path)
            whole[path] += variable.size_bytes
            if variable.rows_per_step is not None:
                whole_tables[path] += variable.size_bytes
        memory = [
            max(forecast.memory_bytes_per_server(workers=workers, has_rounds=has_rounds))
            for has_rounds in (False, True)
        ]
        return cls(
            workers=workers,
            servers=forecast.server_count,
            dense_bytes=_sum_bytes(v for v in dense if v.is_pulled),
            gradient_bytes=_sum_bytes(v for v in dense if v.is_trained),
            slot_bytes=_sum_bytes(v for v in dense if not v.is_pulled),
            table_bytes=_sum_bytes(v for v in tables if v.is_pulled),
            table_slot_bytes=_sum_bytes(v for v in tables if not v.is_pulled),
            row_bytes=sum(v.pull_bytes for v in tables),
            largest_table_bytes=max(whole_tables.values(), default=0),
            largest_bytes=max(whole.values(), default=0),
            step_bytes=sum(v.step_bytes for v in variables),
            left_out_bytes=left_out_bytes,
            server_bytes=memory[0],
            round_server_bytes=memory[1],
            activation_bytes=forecast.activation_bytes,
            period_steps=period_steps,
        )

    @property
    def weight_bytes(self) -> int:
        """The bytes of all weights."""
        return self.dense_bytes + self.table_bytes

    @property
    def state_bytes(self) -> int:
        """The bytes of all variables between two steps: weights, slots and other state."""
        return self.weight_bytes + self.slot_bytes + self.table_slot_bytes

    @property
    def exchange_bytes(self) -> int:
        """The traffic of a step between a worker and all tfps servers, after coding."""
        return self.step_bytes - self.left_out_bytes

    @property
    def pushed_bytes(self) -> int:
        """The bytes of a step's gradients: of whole variables, and of rows."""
        return self.gradient_bytes + self.row_bytes

    @property
    def pulled_bytes(self) -> int:
        """The bytes of a step's parameters: of whole variables, and of rows."""
        return self.dense_bytes + self.row_bytes


def _find_owner(
    variable: PlannedVariable, variables: tuple[PlannedVariable, ...]
) -> PlannedVariable:
    """Return the weight that a slot belongs to, or the variable itself."""
    return variable if variable.owner is None else variables[variable.owner]


def _sum_bytes(variables: Iterable[PlannedVariable]) -> int:
    return sum(variable.size_bytes for variable in variables)
