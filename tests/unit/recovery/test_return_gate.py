"""The gate of lost servers lets closures run only while every server has what it had."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfps.recovery.servers.return_gate import ReturnGate, ReturnState


@dataclass
class Server:
    lost: str | None = None


@dataclass
class Job:
    closed: bool = False
    servers: list[Server] = field(default_factory=lambda: [Server(), Server()])


def test_the_states_of_a_return() -> None:
    gate = ReturnGate(job := Job())
    states = [gate.state]
    assert gate.enter()
    assert gate.close(1, "ps 1 is gone.") == 1
    assert not gate.drain()  # a closure runs
    states.append(gate.state)
    gate.leave()
    assert gate.drain()
    states.append(gate.state)
    assert gate.open()
    states.append(gate.state)
    assert states == [
        ReturnState.ALL_THERE,
        ReturnState.FENCED,
        ReturnState.RETURNING,
        ReturnState.ALL_THERE,
    ]
    assert [server.lost for server in job.servers] == [None, None]


def test_one_more_loss_while_servers_are_filled_keeps_the_gate_closed() -> None:
    gate = ReturnGate(job := Job())
    gate.close(1, "ps 1 is gone.")
    assert gate.drain()
    assert gate.close(0, "ps 0 is gone.") == 2
    assert not gate.open()
    assert [server.lost for server in job.servers] == ["ps 0 is gone.", "ps 1 is gone."]
    assert gate.drain()
    assert gate.open()


def test_what_was_given_up_stays_so() -> None:
    gate = ReturnGate(job := Job())
    gate.close(1, "ps 1 is gone.")
    assert gate.give_up("It is over.") == "ps 1 is gone. It is over."
    assert not gate.enter()
    assert gate.close(0, "ps 0 is gone.") == 0
    assert not gate.drain()
    assert not gate.open()
    assert job.servers[1].lost == "ps 1 is gone. It is over."
