"""One exchange of a worker with a parameter server, by each carrier and from 4 KB to 64 MB.

Carriers take turns within each size. TLS is a setting of a whole task, so it has a cluster of its
own; its turns come between those of the other. Beside the bare exchange ("echo": the server sends
back what it gets), two rows at the size of the MLP of `tfps bench throughput` say what a server's
work costs. They are steps of a real `fit` over `direct` whose model computes nothing: "+ ledger"
adds the mutex, version, ticket check, histograms of staleness and durations and the metrics of a
push, and the worker's loop around it; "+ Adam update" adds the optimizer. The CPU of the parameter
server tells what of that is the server's.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tfps.bench.certificates import can_make_certificates, make_certificates
from tfps.bench.transport.results import CARRIERS, MLP_BYTES, TransportResults
from tfps.bench.turn import Turn, processes
from tfps.launch import LocalCluster
from tfps.transport.direct.secret import SECRET_VARIABLE

SIZES_BYTES = (4_000, 64_000, MLP_BYTES, 4_000_000, 16_000_000, 64_000_000)


@dataclass(frozen=True)
class Transport:
    """How to measure.

    Args:
        sizes_bytes: of the payload, up and down.
        repetitions: turns of each cluster; each is a fresh chief process.
        rounds: measurements of each case in a turn.
        measured_s: how long a measurement takes, about.
    """

    sizes_bytes: Sequence[int] = SIZES_BYTES
    repetitions: int = 3
    rounds: int = 2
    measured_s: float = 0.5

    def quick(self) -> Transport:
        """Give a version that shows whether everything works, with numbers of little worth."""
        sizes_bytes = (4_000, MLP_BYTES)
        return replace(self, sizes_bytes=sizes_bytes, repetitions=1, rounds=1, measured_s=0.05)

    def as_json(self) -> dict[str, Any]:
        """The form in the report."""
        return {**asdict(self), "sizes_bytes": list(self.sizes_bytes)}

    @property
    def turns(self) -> int:
        """How many chief processes a run starts."""
        return self.repetitions * (1 + can_make_certificates())


def run(settings: Transport, *, progress: Callable[[str], None], log_dir: Path) -> TransportResults:
    """Measure everything; without the `openssl` command there are no rows with TLS.

    Args:
        settings: what and how long.
        progress: is called with the name of each turn when it starts.
        log_dir: where the chiefs and the servers write what they have to say.

    Raises:
        TaskFailed: a chief process failed; the message has its last lines.
    """
    log_dir.mkdir(parents=True, exist_ok=True)
    results = TransportResults()
    with tempfile.TemporaryDirectory(prefix="tfps-bench-") as folder, ExitStack() as stack:
        sites = [
            _Site(encrypts, environment, stack.enter_context(_cluster(log_dir, environment)))
            for encrypts, environment in _environments(Path(folder)).items()
        ]
        for _ in range(settings.repetitions):
            for site in sites:
                progress(", ".join(CARRIERS[name].title for name in site.carriers))
                results.add(site.turn(settings).run(site.cluster, log_dir=log_dir))
    return results


@dataclass(frozen=True)
class _Site:
    """A cluster, and the carriers that are measured on it."""

    encrypts: bool
    environment: Mapping[str, str]
    cluster: LocalCluster

    @property
    def carriers(self) -> list[str]:
        return [name for name, carrier in CARRIERS.items() if carrier.encrypts == self.encrypts]

    def turn(self, settings: Transport) -> Turn:
        order = {
            "carriers": self.carriers,
            "sizes_bytes": settings.sizes_bytes,
            "ledger": not self.encrypts,
            "rounds": settings.rounds,
            "measured_s": settings.measured_s,
            "groups": {role: processes(self.cluster, role) for role in ("worker", "ps")},
        }
        name = "transport_tls" if self.encrypts else "transport"
        module = "tfps.bench.transport.turn:measure"
        return Turn(name=name, function=module, order=order, environment=self.environment)


def _environments(folder: Path) -> dict[bool, dict[str, str]]:
    """The variables of each cluster's tasks, by whether it encrypts."""
    # The chief takes it from there too, and need not ask the strategy for the one that it made.
    plain = {SECRET_VARIABLE: secrets.token_hex(32)}
    if not can_make_certificates():
        return {False: plain}
    return {False: plain, True: plain | make_certificates(folder)}


def _cluster(log_dir: Path, environment: Mapping[str, str]) -> LocalCluster:
    name = "cluster-tls" if len(environment) > 1 else "cluster"
    return LocalCluster(workers=1, ps=1, log_dir=log_dir / name, environment=environment)
