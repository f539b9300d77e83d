"""A network of this machine's own: each task in a network namespace, with links of a given rate."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tfps.cluster import ClusterSpec

Task = tuple[str, int]

PORT = 2222
# What a link lets through at once: enough for the clock of the system's queues, little for a
# message of a step.
BURST_S = 0.004
LEAST_BURST_BYTES = 32_768
LATENCY = "50ms"  # of what waits for a link; what comes above it is dropped, and TCP slows down
TIMEOUT_S = 20.0

_numbers = itertools.count(1)


class NoNamespacesError(RuntimeError):
    """This process may not make network namespaces, or has not got the commands; says why."""


@dataclass(frozen=True)
class NamespaceNetwork:
    """Tasks with addresses of their own.

    Attributes:
        names: task -> its namespace.
        spec: of the cluster, with the address of each task.
        hub: the namespace of the bridge between them.
    """

    names: Mapping[Task, str]
    spec: ClusterSpec
    hub: str

    def command(self, task: Task, arguments: Sequence[str]) -> list[str]:
        """Return the command that runs arguments in a task's namespace, in ``ip``'s own process."""
        return ["ip", "netns", "exec", self.names[task], *arguments]

    def limit(self, megabits_per_s: float | None) -> None:
        """Limit each link to a number of megabits (10^6) per second each way; None: no limit.

        Raises:
            NoNamespacesError: the command ``tc`` is missing, or the system knows no such queue.
        """
        for number, name in enumerate(self.names.values(), start=1):
            for namespace, device in ((name, f"p{number}"), (self.hub, f"v{number}")):
                _shape(namespace, device, megabits_per_s)


@contextlib.contextmanager
def namespaces(
    tasks: Sequence[Task], *, megabits_per_s: float | None = None
) -> Iterator[NamespaceNetwork]:
    """Yield a network namespace for each task, joined by a bridge; they go with the block.

    What runs there sees no other network, so tasks meet over TCP, as on machines of their own. It
    needs root and ``ip``, and for a rate ``tc``: both are in Debian's iproute2.

    Args:
        tasks: for example ``("chief", 0)``; addresses are given in this order.
        megabits_per_s: of each link, each way; None sets no limit.

    Raises:
        NoNamespacesError: they cannot be had here.

    Example:

    >>> tasks = [("chief", 0), ("worker", 0), ("ps", 0)]
    >>> with namespaces(tasks, megabits_per_s=100) as network:  # doctest: +SKIP
    ...     network.command(("ps", 0), ["python", "-m", "tfps", "serve"])
    """
    if shutil.which("ip") is None:
        raise NoNamespacesError("network namespaces need the command ip (iproute2)")
    hub = f"tfps{os.getpid()}-{next(_numbers)}"
    names = {task: f"{hub}-{task[0]}{task[1]}" for task in tasks}
    addresses = {task: f"10.77.0.{number}" for number, task in enumerate(tasks, start=1)}
    with contextlib.ExitStack() as stack:
        for name in (hub, *names.values()):
            _run("ip", "netns", "add", name)
            stack.callback(_run, "ip", "netns", "delete", name)
        _run("ip", "-n", hub, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", hub, "link", "set", "bridge", "up")
        for number, (task, name) in enumerate(names.items(), start=1):
            own, other = f"p{number}", f"v{number}"
            # Both ends are made in the hub, so that the machine's own network never has them.
            _run("ip", "-n", hub, "link", "add", other, "type", "veth", "peer", own)
            _run("ip", "-n", hub, "link", "set", other, "master", "bridge", "up")
            _run("ip", "-n", hub, "link", "set", own, "netns", name)
            _run("ip", "-n", name, "address", "add", f"{addresses[task]}/24", "dev", own)
            _run("ip", "-n", name, "link", "set", own, "up")
            _run("ip", "-n", name, "link", "set", "lo", "up")
        kinds = dict.fromkeys(kind for kind, _ in tasks)
        jobs = {
            kind: tuple(f"{addresses[task]}:{PORT}" for task in tasks if task[0] == kind)
            for kind in kinds
        }
        network = NamespaceNetwork(names, ClusterSpec(jobs=jobs), hub)
        if megabits_per_s is not None:
            network.limit(megabits_per_s)
        yield network


def _shape(namespace: str, device: str, megabits_per_s: float | None) -> None:
    if shutil.which("tc") is None:
        raise NoNamespacesError("a rate of links needs the command tc (iproute2)")
    if megabits_per_s is None:
        # There is none to delete where there was no limit; a queue without one takes its place.
        _run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "pfifo")
        return
    burst_bytes = max(LEAST_BURST_BYTES, int(megabits_per_s * 1e6 / 8 * BURST_S))
    rate = ["rate", f"{megabits_per_s:g}mbit", "burst", str(burst_bytes), "latency", LATENCY]
    _run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", *rate)


def _run(*command: str) -> None:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment
        )
    except subprocess.CalledProcessError as error:
        raise NoNamespacesError(
            f"network namespaces are not permitted here: {error.stderr.strip()}"
        ) from error
