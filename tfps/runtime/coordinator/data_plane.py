"""Which carrier brings requests to which server, and the plans that servers serve by `direct`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Any, cast

import tensorflow as tf

from tfps.bridge.server_function import server_function
from tfps.cluster.address import split_address
from tfps.errors import ConfigError, UnsupportedError
from tfps.runtime.coordinator.connections import ControlLine
from tfps.runtime.coordinator.control_plane import NoSuchFunction
from tfps.runtime.coordinator.server import Server
from tfps.transport import tokens
from tfps.transport.carrier import Carrier, GrpcCarrier
from tfps.transport.chunked_carrier import ChunkedCarrier
from tfps.transport.direct import (
    SECRET_VARIABLE,
    Endpoint,
    encryption_from_environment,
    fingerprint,
    secret_from_environment,
)
from tfps.transport.direct_carrier import DirectCarrier, MixedCarrier
from tfps.transport.links import Links, Peers
from tfps.transport.one_thread import GraphFunction
from tfps.transport.service import Service
from tfps.transport.service_loop import service_loop

logger = logging.getLogger(__name__)

# A worker that does not answer either is not waited for.
HANG_UP_PATIENCE_S = 3.0


class DataPlane:
    """The carriers of a job.

    `direct` where both ends are processes of tfps, TensorFlow's RPC where one is not.

    Args:
        job_id: goes into every message.
        servers: all of them.
        worker_lines: the coordinator's line to each worker.
        transport: ``"auto"``, ``"direct"`` or ``"grpc"``.

    Raises:
        UnsupportedError: ``"direct"`` with a task that is not a process of tfps.
        ConfigError: tasks with another secret than this process.
    """

    def __init__(
        self,
        *,
        job_id: int,
        servers: Sequence[Server],
        worker_lines: Sequence[ControlLine],
        transport: str,
    ) -> None:
        self.job_id = job_id
        self._worker_lines = list(worker_lines)
        self._secret = secret = secret_from_environment()
        self._sent_secret = b"" if secret else secrets.token_bytes(32)
        self._services: dict[int, _Services] = {}
        plain: list[str] = []
        if transport != "grpc":
            _links_of_this_process()
            plain = self._meet(servers)
        self.direct_workers = tuple(
            transport != "grpc" and f"worker {worker}" not in plain
            for worker in range(len(worker_lines))
        )
        if plain and transport == "direct":
            raise UnsupportedError(
                f'transport: received "direct", but {", ".join(plain)} run a plain '
                "tf.distribute.Server. Start them with `tfps run` or `tfps train`, or use "
                'transport="auto".'
            )
        if plain:
            logger.warning(
                "%s run a plain tf.distribute.Server: they are served through TensorFlow's RPC, "
                "at about half the speed of tfps's own processes.",
                ", ".join(plain),
            )
        grpc = self._grpc = ChunkedCarrier(
            GrpcCarrier(), container=servers[0].ledger.container, workers=len(worker_lines)
        )
        direct: Carrier = DirectCarrier(self._peers().to_json()) if self._services else grpc
        by_server = {s.index: direct if s.index in self._services else grpc for s in servers}
        self._carrier: Carrier = (
            MixedCarrier(by_server) if len(set(by_server.values())) > 1 else (by_server[0])
        )
        self.carriers = tuple(by_server[s.index].name for s in servers)

    def _meet(self, servers: Sequence[Server]) -> list[str]:
        """Ask every task whether it is a process of tfps; answers the names of those that are not.

        Without a worker of tfps no server is used directly.
        """
        lines = {f"worker {worker}": line for worker, line in enumerate(self._worker_lines)}
        lines.update({f"ps {server.index}": server.control for server in servers})
        plain, others = [], []
        own = fingerprint(self._secret, job=self.job_id)
        for name, line in lines.items():
            try:
                if _asked(line, tokens.FINGERPRINT)(self.job_id) != own:
                    others.append(name)
            except NoSuchFunction:
                plain.append(name)
        if others:
            raise ConfigError(_other_secret(others, chief_has_one=self._secret is not None))
        if all(name in plain for name in lines if name.startswith("worker")):
            return plain
        for server in servers:
            if f"ps {server.index}" not in plain:
                self._services[server.index] = _Services(
                    server, job_id=self.job_id, secret=self._sent_secret
                )
        return plain

    def _peers(self) -> Peers:
        return Peers(self.endpoints, self._sent_secret.hex())

    @property
    def endpoints(self) -> dict[int, Endpoint]:
        """Where the servers that are reached directly listen."""
        return {index: services.endpoint for index, services in self._services.items()}

    @property
    def carrier(self) -> Carrier:
        """For functions that any worker, or the coordinator, may run."""
        return self._carrier if all(self.direct_workers) else self._grpc

    def carrier_of(self, worker: int) -> Carrier:
        """For functions that one worker runs."""
        return self._carrier if self.direct_workers[worker] else self._grpc

    def install(
        self, server: Server, service: Service, functions: Sequence[Any], *, hot: int
    ) -> None:
        """Let a server serve a plan; nothing to do where TensorFlow's RPC brings the functions.

        Args:
            server: which one.
            service: describes the functions.
            functions: server functions, in the order of the service's entries.
            hot: the position of the one that steps call.
        """
        if server.index in self._services:
            self._services[server.index].install(service, functions, hot=hot)

    def forget(self, plans: Sequence[tuple[int, int]]) -> None:
        """Free what servers hold for (server, plan)s that nobody uses any more."""
        for index, plan_id in plans:
            if index in self._services and self._services[index].server.lost is None:
                self._services[index].forget(self.job_id, plan_id)

    def last_failures(self) -> str:
        """What servers and workers say of their last failures, for the message of an error."""
        texts = {
            f"ps {index}": services.failure(self.job_id)
            for index, services in self._services.items()
            if services.server.lost is None
        }
        for worker, line in enumerate(self._worker_lines):
            if self.direct_workers[worker]:
                with contextlib.suppress(tf.errors.UnavailableError):  # it is lost itself
                    ask = _asked(line, tokens.LINK_FAILURE)
                    answer = ask(self.job_id, patience_s=HANG_UP_PATIENCE_S)
                    texts[f"worker {worker}"] = answer.decode()
        return " ".join(f"{name} says: {text}." for name, text in texts.items() if text)

    def error_of(self, server: int, plan_id: int) -> tf.errors.OpError | None:
        """What a server's function raised just now while it served a plan, or None."""
        services = self._services.get(server)
        if services is None or services.server.lost is not None:
            return None
        text = services.error(self.job_id, plan_id).decode()
        if not text:
            return None
        code, message = json.loads(text)
        kind = tf.compat.v1.errors.exception_type_from_error_code(code)
        return cast("tf.errors.OpError", kind(None, None, message))

    def hang_up(self, server: int) -> None:
        """End the exchanges of all workers with a server that does not answer."""
        for worker, line in enumerate(self._worker_lines):
            if self.direct_workers[worker]:
                try:
                    _hang_up(line)(self.job_id, server, patience_s=HANG_UP_PATIENCE_S)
                except tf.errors.UnavailableError as error:
                    logger.info(
                        "worker %d could not be told about ps %d: %s", worker, server, error
                    )

    def close(self) -> None:
        """Let all servers forget the job."""
        self._grpc.destroy()
        for services in self._services.values():
            if services.server.lost is None:
                services.close_job(self.job_id)
        if self._services:
            _links_of_this_process().close_job(self.job_id)


class _Services:
    """What the coordinator says to one data server."""

    def __init__(self, server: Server, *, job_id: int, secret: bytes) -> None:
        self.server, line = server, server.control
        open_job = line.process_function(
            tokens.OPEN, arguments=[tf.int64, tf.string], result=tf.string
        )
        host, _ = split_address(server.address)
        endpoint = Endpoint.from_json(open_job(job_id, secret).decode())
        self.endpoint = dataclasses.replace(endpoint, host=host)
        self._install = line.process_function(
            tokens.INSTALL, arguments=[tf.int64, tf.string, tf.string], result=tf.int64
        )
        self.forget = line.process_function(
            tokens.FORGET, arguments=[tf.int64, tf.int64], result=tf.int64
        )
        failure = line.process_function(tokens.FAILURE, arguments=[tf.int64], result=tf.string)
        self.failure: Callable[[int], str] = lambda job: str(failure(job).decode())
        self.error = line.process_function(
            tokens.ERROR, arguments=[tf.int64, tf.int64], result=tf.string
        )
        self.close_job = line.process_function(tokens.CLOSE, arguments=[tf.int64], result=tf.int64)

    def install(self, service: Service, functions: Sequence[Any], *, hot: int) -> None:
        graph = _service_graph(functions, hot=hot, device=self.server.device)
        self._install(service.job_id, service.to_json().encode(), graph)


def _service_graph(functions: Sequence[Any], *, hot: int, device: str) -> bytes:
    """A graph with the inputs and outputs that `transport.data_server` looks for."""
    loop = server_function(
        lambda connection: service_loop(functions, hot=hot, connection=connection),
        device=device,
        signature=[tf.TensorSpec([], tf.int64)],
    )
    graph = tf.Graph()
    with tf.init_scope(), graph.as_default(), tf.device(device):
        connection = tf.compat.v1.placeholder(tf.int64, [], name="connection")
        tf.identity(loop(connection)[0], name="end")
    definition = graph.as_graph_def()
    step = GraphFunction(definition, functions[hot].function_def.signature.name)
    if not step.has_gate:
        step.run_on_one_thread()
    return bytes(definition.SerializeToString())


@functools.cache
def _links_of_this_process() -> Links:
    """The coordinator exchanges too, when it pulls and pushes itself."""
    links = Links(encryption=encryption_from_environment())
    links.register(in_a_task=False)
    return links


def _other_secret(tasks: Sequence[str], *, chief_has_one: bool) -> str:
    received = "another secret than this process, or none" if chief_has_one else "a secret"
    return (
        f"{SECRET_VARIABLE}: {', '.join(tasks)} received {received}, expected the same as this "
        f"process{'' if chief_has_one else ', which has none'}. Give the same {SECRET_VARIABLE} "
        "(or TFPS_JOB_SECRET_FILE) to every task of the job, the chief too, or to none."
    )


def _asked(line: ControlLine, token: str) -> Any:
    return line.process_function(token, arguments=[tf.int64], result=tf.string)


def _hang_up(line: ControlLine) -> Any:
    return line.process_function(tokens.HANG_UP, arguments=[tf.int64, tf.int64], result=tf.int64)
